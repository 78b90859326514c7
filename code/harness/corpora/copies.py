"""Thumbnails of images, which load faster: a diagnosis prices what keeping them would bring."""

import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from PIL import Image

from harness.corpora import ProgressHook, readers
from harness.corpora.manifest import Item, Manifest
from harness.spec import THUMBNAIL_PX
from wallclock.errors import ImageError, image_errors
from wallclock.files import write_bytes
from wallclock.preprocess import denominator_for
from wallclock.stages.decode.pil import make_image

KIND = "thumbnails"
#: Images that are not so many times larger need no thumbnail.
_LARGE = 1.5
_QUALITY = 90
#: Decoded to at least this times the thumbnail's size before it is scaled.
_MARGIN = 1.25

_decode = make_image()
_SIDE = _MARGIN * THUMBNAIL_PX


def _make(data: bytes) -> bytes:
    with Image.open(io.BytesIO(data)) as header:
        scale = denominator_for(header.height, header.width, _SIDE, _SIDE)
    image = _decode(data, scale)
    scale = THUMBNAIL_PX / min(image.size)
    size = (round(image.width * scale), round(image.height * scale))
    file = io.BytesIO()
    image.resize(size, Image.Resampling.BILINEAR).save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()


#: The thumbnail of an image's file. Raises ImageError: Pillow cannot make it.
thumbnail = image_errors("encode", "Pillow", _make)


def is_worth_a_thumbnail(width: int, height: int) -> bool:
    """Whether an image is so much larger that a thumbnail can take its place."""
    return min(width, height) > _LARGE * THUMBNAIL_PX


def replaced(items: Sequence[Item]) -> list[Item]:
    """Those that are so large that a thumbnail takes their place."""
    return [item for item in items if is_worth_a_thumbnail(item.width, item.height)]


def make(manifest: Manifest, folder: Path, progress: ProgressHook) -> None:
    """Fill a folder: a thumbnail of each valid large image, a link to each other one.

    Files are in the manifest's order by name. Those of an earlier call are kept.
    """
    read = readers.make(manifest)

    def make_copy(index: int, item: Item) -> None:
        path = folder / f"{index:07d}"
        if path.exists():
            return
        data = None
        if is_worth_a_thumbnail(item.width, item.height):
            with suppress(ImageError):  # it stays as it is: copies are of the same images
                data = thumbnail(read(item))
        if data is None:
            os.symlink(manifest.root / item.path, path)
        else:
            write_bytes(path, data, sync=False)

    folder.mkdir(parents=True, exist_ok=True)
    items = manifest.valid
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        copies = pool.map(make_copy, range(len(items)), items)
        for done, _ in enumerate(copies, start=1):
            progress(done, len(items), KIND)
