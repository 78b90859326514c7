"""The same pool with the geometry of DINOv2's processor: to the shorter side, bicubic, and cropped.

A picture whose shorter side is right already, as of most thumbnails, is decoded and sliced. Of
others, `exact` and `interpolate` are those of `dataloader_scaled`.
"""

import numpy as np

from harness.engines.third_party._torch import Load, antialiased
from harness.engines.third_party.dataloader_scaled import decoder, resize_exactly
from harness.engines.third_party.thread_pool import thread_pool
from wallclock.preprocess import Preprocess
from wallclock.stages.decode import PixelArray

#: Pixels decoded along each side, at least, per pixel of the result.
_MARGIN = 1.5
_HOW = f"simplejpeg at margin {_MARGIN}, a buffer used again; a slice, or before it "
_VARIANTS = {
    "exact": f"{_HOW}_upsample_bicubic2d_aa of exact extent",
    "interpolate": f"{_HOW}interpolate(bicubic, antialias) of all pixels",
}


def geometry(px: int) -> Preprocess:
    """256 and 224 pixels, or as much larger as the input."""
    return Preprocess("shortest", (px * 8 // 7,) * 2, (px, px), "bicubic")


def _make(px: int, variant: str) -> Load:
    crop, resize = geometry(px), resize_exactly("bicubic")
    decode = decoder(_MARGIN * crop.size[0])
    resized = np.empty((0, 0, 3), np.uint8)

    def load(data: bytes, row: PixelArray) -> None:
        nonlocal resized
        pixels, full, n = decode(data)
        size, (top, left), *_ = crop.place(*full)
        if pixels.shape[:2] != size and variant == "interpolate":
            pixels = antialiased(pixels, size, "bicubic")
        elif pixels.shape[:2] != size:
            if resized.shape[:2] != size:
                resized = np.empty((*size, 3), np.uint8)
            resize(pixels, full, n, resized)
            pixels = resized
        row[...] = pixels[top : top + px, left : left + px]

    return load


LOADER = thread_pool("thread-pool-crop", "Thread pool, DINOv2's crop", _make, _VARIANTS)
