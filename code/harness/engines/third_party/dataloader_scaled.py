"""The same libraries by hand: a DataLoader, simplejpeg at a reduced scale, torch's resize.

What an expert writes who knows all that this suite's recipe does, and has torch's DataLoader around
it: https://pypi.org/project/simplejpeg/ (`decode_jpeg` with `min_height`, `min_width` and a buffer
that is used again) and `interpolate(antialias=True)` of
https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html, by the operator
underneath, which writes into the batch and takes a scale beside the size.

Variants. `exact` resizes the extent that the image covers in the scaled array: 1873 px at 1/4 are
468.25 of 469. `exact 1` decodes to as few pixels as the target has, not to 1.25 times its side.
`all` resizes all pixels of the array, as `interpolate(size=…)` does, which stretches the picture.
"""

import numpy as np

from harness.engines.third_party._interface import version
from harness.engines.third_party._torch import Load, dataloader
from wallclock.stages.decode import PixelArray, Scaling

_HOW = "simplejpeg at margin {}, a buffer used again; _upsample_bilinear2d_aa of {}"
#: Variant → its configuration in words.
VARIANTS = {
    "exact": _HOW.format("1.25", "exact extent"),
    "exact 1": _HOW.format("1", "exact extent"),
    "all": _HOW.format("1.25", "all pixels"),
}


def load_function(px: int, variant: str) -> Load:
    """Bytes of a JPEG into a row, uint8 (px, px, 3). Not for two threads at a time."""
    import simplejpeg
    import torch

    extent, _, margin = variant.partition(" ")
    scaling = Scaling(px, float(margin or 1.25))
    resize = torch.ops.aten._upsample_bilinear2d_aa.out
    buffer = np.empty(0, np.uint8)

    def load(data: bytes, row: PixelArray) -> None:
        nonlocal buffer
        height, width = simplejpeg.decode_jpeg_header(data)[:2]
        n = scaling.denominator(width, height)
        rows, columns = -(-height // n), -(-width // n)
        if buffer.size < rows * columns * 3:
            buffer = np.empty(rows * columns * 3, np.uint8)
        pixels = simplejpeg.decode_jpeg(
            data, "RGB", min_height=rows, min_width=columns, buffer=buffer
        )
        scales = (px * n / height, px * n / width) if extent == "exact" else (None, None)
        image, target = (torch.from_numpy(array).permute(2, 0, 1)[None] for array in (pixels, row))
        resize(image, [px, px], False, *scales, out=target)

    return load


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
