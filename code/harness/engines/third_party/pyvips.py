"""libvips, which shrinks while it loads; one libvips thread a worker, no operation cache.

https://www.libvips.org/API/current/Developer-checklist.html: `thumbnail` rather than `resize`; its
filter is lanczos3. Variant `linear`: `thumbnail`'s two steps, with the bilinear filter of all
others.
"""

from typing import Any

import numpy as np

from harness.engines.third_party._interface import version
from harness.engines.third_party._torch import Load, dataloader
from harness.peers import import_or_unavailable
from wallclock.preprocess import denominator_for
from wallclock.stages.decode import PixelArray

#: How far above the target `thumbnail` lets libjpeg scale; it leaves the rest to the filter.
_MARGIN = 2.0


def _make(px: int, variant: str) -> Load:
    library = import_or_unavailable("pyvips")
    # The variable VIPS_CONCURRENCY is read once, in the process that forks the workers.
    library.concurrency_set(1)
    library.cache_set_max(0)
    image_class, side = library.Image, _MARGIN * px

    def thumbnail(data: bytes) -> PixelArray:
        image = image_class.thumbnail_buffer(data, px, height=px, size="force", no_rotate=True)
        return _rgb(image)

    def linear(data: bytes) -> PixelArray:
        header = image_class.jpegload_buffer(data)
        width, height = header.width, header.height
        shrink = denominator_for(height, width, side, side)
        image = image_class.jpegload_buffer(data, shrink=shrink) if shrink > 1 else header
        # Of the scaled file, its size in the file counts: the last pixel may be a part of one.
        across, down = px * shrink / width, px * shrink / height
        return _rgb(image.resize(across, vscale=down, kernel="linear"))[:px, :px]

    decode = linear if variant == "linear" else thumbnail

    def load(data: bytes, row: PixelArray) -> None:
        row[...] = decode(data)

    return load


def _rgb(image: Any) -> PixelArray:
    colour = image if image.bands == 3 else image.colourspace("srgb")
    return np.asarray(colour.numpy())


def _library() -> str:
    vips = import_or_unavailable("pyvips").version
    return f"{version('pyvips')} on libvips {vips(0)}.{vips(1)}.{vips(2)}"


_ONE_THREAD = "vips_concurrency_get() = 1"
LOADER = dataloader(
    "pyvips",
    "DataLoader + pyvips",
    _make,
    {
        "thumbnail": f"thumbnail_buffer (shrink on load, lanczos3), {_ONE_THREAD}",
        "linear": f"jpegload_buffer(shrink, margin {_MARGIN}), resize linear, {_ONE_THREAD}",
    },
    ("pyvips", "pyvips-binary"),
    _library,
)
