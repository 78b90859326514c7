"""Copies of images that load faster: what a diagnosis proposes to keep beside the originals.

thumbnails: scaled to a shorter side of 256 px. baseline: a progressive JPEG with the same
quantization as a baseline one. jpeg: a PNG, WebP, TIFF or BMP as a JPEG of quality 95 without
chroma subsampling; alpha is dropped, as `stages.decode` drops it.
"""

import io
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from PIL import Image

from harness.corpora import ProgressHook, readers
from harness.corpora.manifest import Item, Manifest
from wallclock.errors import ImageError, image_errors
from wallclock.files import write_bytes
from wallclock.stages.decode import Scaling, make_image
from wallclock.stages.resize import THUMBNAIL_PX, is_worth_a_thumbnail

_QUALITY = {"thumbnails": 90, "jpeg": 95}
#: Decoded to at least this times the thumbnail's size before it is scaled.
_MARGIN = 1.25

_decode = make_image()
_scaling = Scaling(THUMBNAIL_PX, _MARGIN)


def _thumbnail(data: bytes) -> bytes:
    with Image.open(io.BytesIO(data)) as header:
        scale = _scaling.denominator(*header.size)
    image = _decode(data, scale)
    scale = THUMBNAIL_PX / min(image.size)
    size = (round(image.width * scale), round(image.height * scale))
    small = image.resize(size, Image.Resampling.BILINEAR)
    return _save(small, quality=_QUALITY["thumbnails"])


def _baseline(data: bytes) -> bytes:
    with Image.open(io.BytesIO(data)) as image:
        return _save(image, quality="keep", progressive=False)


def _jpeg(data: bytes) -> bytes:
    return _save(_decode(data), quality=_QUALITY["jpeg"], subsampling="4:4:4")


def _save(image: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


_ENCODERS: Mapping[str, Callable[[bytes], bytes]] = {
    "thumbnails": _thumbnail,
    "baseline": _baseline,
    "jpeg": _jpeg,
}
#: The formats that a JPEG takes the place of.
RE_ENCODED = ("png", "webp", "tiff", "bmp")
#: The kinds of copies.
KINDS = tuple(_ENCODERS)


def is_replaced(kind: str, item: Item) -> bool:
    """Whether a copy of that kind takes this image's place."""
    if kind == "thumbnails":
        return is_worth_a_thumbnail(item.width, item.height)
    if kind == "baseline":
        return item.format == "jpeg" and item.process == "progressive"
    return item.format in RE_ENCODED


def encode(kind: str, data: bytes) -> bytes:
    """The copy of an image's file. Raises ImageError: Pillow cannot make it."""
    return image_errors("encode", "Pillow", _ENCODERS[kind])(data)


def make(manifest: Manifest, kind: str, folder: Path, progress: ProgressHook) -> None:
    """Fill a folder: a copy of each valid image that has one, a link or the bytes of the others.

    Files are in the manifest's order by name. Those of an earlier call are kept.
    """
    read = readers.make(manifest)
    are_files = readers.storage_of(manifest) == "files"

    def make_copy(index: int, item: Item) -> None:
        path = folder / f"{index:07d}"
        if path.exists():
            return
        data = None
        if is_replaced(kind, item):
            with suppress(ImageError):  # it stays as it is: copies are of the same images
                data = encode(kind, read(item))
        if data is None and are_files:
            os.symlink(manifest.root / item.path, path)
        else:
            write_bytes(path, data or read(item), sync=False)

    folder.mkdir(parents=True, exist_ok=True)
    items = manifest.valid
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        copies = pool.map(make_copy, range(len(items)), items)
        for done, _ in enumerate(copies, start=1):
            progress(done, len(items), f"copies: {kind}")
