"""What a first version does: `Image.open`, `convert`, `resize` with Pillow's bilinear filter.

`blocks`: Pillow keeps the memory of images that were freed, as
https://pillow.readthedocs.io/en/stable/reference/block_allocator.html describes.
"""

import io

import numpy as np

from harness.engines.third_party._interface import version
from harness.engines.third_party._torch import Load, dataloader
from wallclock.recipe import Limits
from wallclock.stages.decode import PixelArray
from wallclock.stages.decode.pil import admit_pixels

#: Blocks of 16 MiB that Pillow keeps: an original of 5 MP takes two, converted or not.
_BLOCKS = 8


def make(px: int, variant: str) -> Load:
    """Full decode and resize, both inside Pillow."""
    from PIL import Image

    admit_pixels(Limits.max_pixels)
    if variant == "blocks":
        getattr(Image, "core").set_blocks_max(_BLOCKS)  # noqa: B009 - not in its type stubs

    def load(data: bytes, row: PixelArray) -> None:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        row[...] = np.asarray(image.resize((px, px), Image.Resampling.BILINEAR))

    return load


_HOW = "Image.open, convert, resize(BILINEAR)"
LOADER = dataloader(
    "pil",
    "DataLoader + PIL",
    make,
    {"": _HOW, "blocks": f"{_HOW}, PILLOW_BLOCKS_MAX={_BLOCKS}"},
    library=lambda: version("pillow"),
)
