"""keep=thumbnails: small copies of a shard's images in a tar beside its vectors.

The tar is WebDataset's: of each image `<position>.jpg` and `<position>.json` with its id, hash and
size. A shorter side of 256 px is made of the pixels that were decoded for the network anyway; an
image that is not much larger keeps its bytes.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg

from wallclock.check import ImageInfo
from wallclock.errors import image_errors
from wallclock.job.dataset import Dataset
from wallclock.job.index import by_part
from wallclock.job.listing import Items
from wallclock.job.shard import Shard
from wallclock.job.tars import Member, members
from wallclock.job.unchanged import Places
from wallclock.orientation import UPRIGHT, orient
from wallclock.stages.pixels import PixelArray
from wallclock.stages.resize import THUMBNAIL_PX, channels_first, is_worth_a_thumbnail

_QUALITY = 90
_HEADER = tarfile.TarInfo().tobuf(tarfile.USTAR_FORMAT)
#: Where a header has a file's size, and its checksum, which counts as blanks in the sum.
_SIZE, _CHECKSUM = slice(124, 135), slice(148, 156)
_SUM = sum(_HEADER) - sum(_HEADER[_SIZE]) - sum(_HEADER[_CHECKSUM]) + sum(b" " * 8)
#: Written at once: each call releases the GIL, which the loader's threads wait for.
_BUFFER_BYTES = 1 << 20


def _make(data: bytes, info: ImageInfo, pixels: PixelArray) -> bytes:
    if not is_worth_a_thumbnail(info.width, info.height):
        return data
    # torch's resize is Pillow's in vector code: a third of the time.
    import torch

    is_writeable = isinstance(pixels, np.ndarray) and pixels.flags.writeable
    image = pixels if is_writeable else np.array(pixels)  # torch warns of what is read-only
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


def read_kept(earlier: Dataset, places: Places) -> dict[int, bytes]:
    """The copies that an earlier dataset has of its rows, by index into `places`."""
    copies = dict[int, bytes]()
    for number, indices, rows in by_part(places):
        digests = earlier.rows(number, ["sha256"])["sha256"].take(rows).to_pylist()
        with earlier.thumbnails(number) as tar:
            earlier.check_file(number, earlier.tar(number), tar)
            where = {digest: place.decode() for _, place, digest in members([tar])}
            if not where.keys() >= set(digests):
                raise earlier.damaged(number, earlier.tar(number), "an image is missing")
            for index, digest in zip(indices.tolist(), digests, strict=True):
                copies[index] = Member(f"{tar.parent}/{where[digest]}").read()
    return copies


def write(shard: Shard, items: Items, path: Path) -> None:
    """Write a shard's copies as a tar: the same bytes each time."""
    ids = items.ids[shard.first : shard.last].to_pylist()
    widths, heights = shard.sizes.tolist()
    with path.open("wb", _BUFFER_BYTES) as file:
        for offset in sorted(shard.thumbnails):
            about: dict[str, Any] = {"id": ids[offset], "sha256": shard.sha256[offset]}
            about |= {"width": widths[offset], "height": heights[offset]}
            members = {"jpg": shard.thumbnails[offset], "json": json.dumps(about).encode()}
            for extension, data in members.items():
                head = header(f"{shard.first + offset:09d}.{extension}", len(data))
                file.write(head + data + bytes(-len(data) % tarfile.BLOCKSIZE))
        file.write(bytes(2 * tarfile.BLOCKSIZE))


def header(name: str, size: int) -> bytes:
    """The header of a file in a tar, as `tarfile` writes it, without its checks."""
    head = bytearray(_HEADER)
    encoded_name, octal_size = name.encode("ascii"), b"%011o" % size
    head[: len(encoded_name)] = encoded_name
    head[_SIZE] = octal_size
    head[_CHECKSUM] = b"%06o\0 " % (_SUM + sum(encoded_name) + sum(octal_size))
    return bytes(head)
