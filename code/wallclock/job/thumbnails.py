"""keep=thumbnails: small copies of a part's images in a tar beside it, which a next job can read.

The tar is WebDataset's: of each image `<position>.jpg` and `<position>.json` with its id, hash and
size. A shorter side of 256 px is made of the pixels that were decoded for the network anyway; an
image that is not much larger keeps its bytes.
"""

import io
import json
import os
import tarfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import simplejpeg

from wallclock import documents
from wallclock.check import ImageInfo
from wallclock.errors import image_errors
from wallclock.job.dataset import THUMBNAILS, Dataset
from wallclock.loader.tars import Span
from wallclock.orientation import UPRIGHT, orient
from wallclock.stages.pixels import PixelArray, copied
from wallclock.stages.resize import THUMBNAIL_PX, channels_first, is_worth_a_thumbnail

_QUALITY = 90
#: Of a copy's JSON: its fields, and bytes at most.
_ABOUT, _MOST_SAID = {"id": str, "sha256": str}, 1 << 20


def _make(data: bytes, info: ImageInfo, pixels: PixelArray) -> bytes:
    if not is_worth_a_thumbnail(info.width, info.height):
        return data
    # torch's resize is Pillow's in vector code: a third of the time.
    import torch

    is_writeable = isinstance(pixels, np.ndarray) and pixels.flags.writeable
    image = (
        pixels if is_writeable else copied(np.asarray(pixels))
    )  # torch warns of what is read-only
    if info.orientation != UPRIGHT:
        # The copy has no EXIF; of a job that takes images as they are stored, neither is it turned.
        image = np.ascontiguousarray(orient(image, info.orientation))
    scale = THUMBNAIL_PX / min(image.shape[:2])
    height, width = (round(side * scale) for side in image.shape[:2])
    small = np.empty((height, width, 3), np.uint8)
    source, target = (torch.from_numpy(channels_first(array)) for array in (image, small))
    torch.ops.aten._upsample_bilinear2d_aa.out(source, (height, width), False, out=target)
    copy: bytes = simplejpeg.encode_jpeg(small, _QUALITY, "RGB", "420", fastdct=True)
    return copy


#: The copy of an image: of its file's bytes, its header and its decoded pixels (h, w, 3). Raises
#: ImageError: it cannot be made.
thumbnail = image_errors("encode", "simplejpeg", _make)


_Copies: TypeAlias = Sequence[tuple[int, bytes, Mapping[str, Any]]]


def write_tar(copies: _Copies, path: Path) -> None:
    """Write images by position, each with what its JSON says; the same bytes each time."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for position, image, about in copies:
            for extension, data in (("jpg", image), ("json", json.dumps(about).encode())):
                member = tarfile.TarInfo(f"{position:09d}.{extension}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def write_anew(copies: _Copies, before: Path | None, gone: Collection[str], path: Path) -> None:
    """As `write_tar`, behind those of a tar from before whose ids are not `gone`, numbered anew."""
    kept = [] if before is None else [*_members(before)]
    with open(before or os.devnull, "rb") as file:
        images = [
            (os.pread(file.fileno(), size, offset), about)
            for about, offset, size in kept
            if about["id"] not in gone
        ]
    images += [(image, about) for _, image, about in copies if about["id"] in gone]
    write_tar([(at, *image) for at, image in enumerate(images)], path)


def members(dataset: Dataset) -> Iterator[tuple[str, bytes, str]]:
    """The id, the place, as `member` takes it, and the sha256 of each image of a folder's tars.

    Raises DamagedPartError: a tar is not what was written.
    """
    for number in sorted(dataset.with_files(THUMBNAILS).intersection(dataset.committed())):
        with dataset.reading(number, dataset.tar(number)), dataset.thumbnails(number) as path:
            dataset.check_file(number, dataset.tar(number), path)
            for about, offset, size in _members(path):
                yield about["id"], f"{path.name}@{offset}+{size}".encode(), about["sha256"]


def _members(path: Path) -> Iterator[tuple[Mapping[str, Any], int, int]]:
    """Of each image of a tar what its JSON says, and where in the file its bytes are."""
    with tarfile.open(path, "r:") as tar:
        files = iter(tar)
        for image, text in zip(files, files, strict=True):
            said = tar.extractfile(text).read(_MOST_SAID)  # type: ignore[union-attr]
            yield documents.load(said, _ABOUT), image.offset_data, image.size


def member(where: str) -> Span:
    """An image in a tar, `<path>@<offset>+<bytes>`."""
    path, _, extent = where.rpartition("@")
    offset, _, size = extent.partition("+")
    return Span(path, int(offset), int(size))
