"""keep=thumbnails: small copies of a shard's images in a tar beside its vectors.

The tar is WebDataset's: of each image `<position>.jpg` and `<position>.json` with its id, hash and
size. A shorter side of 256 px is made of the pixels that were decoded for the network anyway; an
image that is not much larger keeps its bytes, as `corpus/copies.py` has it.
"""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image

from wallclock.corpus.copies import THUMBNAIL_PX, replaced
from wallclock.corpus.manifest import Item
from wallclock.errors import image_errors
from wallclock.job.shard import Shard
from wallclock.job.sources import Items
from wallclock.stages.pixels import Pixels

_QUALITY = 90


def thumbnail(data: bytes, item: Item, pixels: Pixels) -> bytes:
    """The copy of an image: of its file's bytes, its header and its decoded pixels (h, w, 3)."""
    return _thumbnail(data, item, pixels)


def _make(data: bytes, item: Item, pixels: Pixels) -> bytes:
    if not replaced("thumbnails", item):
        return data
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    scale = THUMBNAIL_PX / min(image.size)
    size = (round(image.width * scale), round(image.height * scale))
    small = np.asarray(image.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0))
    copy: bytes = simplejpeg.encode_jpeg(small, _QUALITY, colorspace="RGB", colorsubsampling="420")
    return copy


_thumbnail = image_errors("encode", "simplejpeg", _make)


def write(shard: Shard, items: Items, path: Path) -> None:
    """Write a shard's copies as a tar: the same bytes each time."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for offset in sorted(shard.made):
            width, height = map(int, shard.sizes[:, offset])
            about: dict[str, Any] = {"id": items.ids[shard.first + offset].as_py()}
            about |= {"sha256": shard.sha256[offset], "width": width, "height": height}
            name = f"{shard.first + offset:09d}"
            _add(tar, f"{name}.jpg", shard.made[offset])
            _add(tar, f"{name}.json", json.dumps(about).encode())


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
