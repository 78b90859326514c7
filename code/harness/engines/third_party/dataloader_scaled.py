"""The same libraries by hand: a DataLoader, simplejpeg at a reduced scale, torch's resize.

What an expert writes who knows all that this suite's recipe does, and has torch's DataLoader around
it: https://pypi.org/project/simplejpeg/ (`decode_jpeg` with `min_height`, `min_width` and a buffer
that is used again), and a resize.

Variants. `interpolate` is torch's public function, as people write it: all pixels of the scaled
array to a size, which stretches the picture. `exact` is the private function underneath, which
writes into the batch and takes a scale beside the size: of 1873 px at 1/4 it resizes 468.25 of 469.
`exact 1` decodes to as few pixels as the target has, not to 1.25 times its side. `linear` is
OpenCV's, which does not antialias.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from harness.engines.third_party._interface import version
from harness.engines.third_party._torch import Load, antialiased, dataloader
from wallclock.preprocess import denominator_for
from wallclock.stages.decode import PixelArray

_HOW = "simplejpeg at margin {}, a buffer used again; {}"
#: Variant → its configuration in words.
VARIANTS = {
    "exact": _HOW.format("1.25", "_upsample_bilinear2d_aa of exact extent"),
    "exact 1": _HOW.format("1", "_upsample_bilinear2d_aa of exact extent"),
    "interpolate": _HOW.format("1.25", "interpolate(bilinear, antialias) of all pixels"),
    "linear": _HOW.format("1.25", "cv2 INTER_LINEAR of all pixels"),
}
#: Pixels of a JPEG at a reduced scale, its height and width in full, and the scale's denominator.
Decoded: TypeAlias = tuple[PixelArray, tuple[int, int], int]
#: From pixels as decoded to an array of another size.
Resize: TypeAlias = Callable[[PixelArray, tuple[int, int], int, PixelArray], None]


def decoder(side: float) -> Callable[[bytes], Decoded]:
    """Decodes a JPEG to sides of at least `side` pixels, into a buffer that is used again."""
    import simplejpeg

    buffer = np.empty(0, np.uint8)

    def decode(data: bytes) -> Decoded:
        nonlocal buffer
        height, width = simplejpeg.decode_jpeg_header(data)[:2]
        n = denominator_for(height, width, side, side)
        rows, columns = -(-height // n), -(-width // n)
        if buffer.size < rows * columns * 3:
            buffer = np.empty(rows * columns * 3, np.uint8)
        pixels = simplejpeg.decode_jpeg(
            data, "RGB", min_height=rows, min_width=columns, buffer=buffer
        )
        return pixels, (height, width), n

    return decode


def resize_exactly(mode: str) -> Resize:
    """Torch's private function: of the exact extent of an image, into an array."""
    import torch

    function: Any = getattr(torch.ops.aten, f"_upsample_{mode}2d_aa").out

    def resize(pixels: PixelArray, full: tuple[int, int], n: int, target: PixelArray) -> None:
        rows, columns = target.shape[:2]
        scales = rows * n / full[0], columns * n / full[1]
        image, out = (torch.from_numpy(each).permute(2, 0, 1)[None] for each in (pixels, target))
        function(image, [rows, columns], False, *scales, out=out)

    return resize


def load_function(px: int, variant: str) -> Load:
    """Bytes of a JPEG into a row, uint8 (px, px, 3). Not for two threads at a time."""
    how, _, margin = variant.partition(" ")
    decode = decoder(px * float(margin or 1.25))
    if how == "exact":
        resize = resize_exactly("bilinear")
        return lambda data, row: resize(*decode(data), row)
    if how == "interpolate":
        return lambda data, row: np.copyto(row, antialiased(decode(data)[0], px))
    import cv2

    cv2.setNumThreads(1)
    return lambda data, row: cv2.resize(decode(data)[0], (px, px), dst=row)


def name_libraries() -> str:
    """What decodes and what resizes."""
    return f"{version('simplejpeg')}, {version('torch')}"


LOADER = dataloader(
    "dataloader-scaled",
    "DataLoader, same libraries",
    load_function,
    VARIANTS,
    ("simplejpeg",),
    name_libraries,
)
