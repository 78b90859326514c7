"""Pillow behind `Image.draft`: libjpeg's scaled decoding, never below a margin of the target.

https://pillow.readthedocs.io/en/stable/reference/Image.html#PIL.Image.Image.draft. `draft` returns
the box of the scaled array that the image covers; resizing all of the array instead would shift the
picture. Variants: the margin, as many times the target's side, and `thumbnail`: what
`Image.thumbnail` does, with `reducing_gap=2`.
"""

import io

import numpy as np

from harness.engines.third_party._interface import version
from harness.engines.third_party._torch import Load, dataloader
from wallclock.recipe import Limits
from wallclock.stages.decode import PixelArray
from wallclock.stages.decode.pil import admit_pixels

_THUMBNAIL_GAP = 2.0


def load_function(px: int, variant: str) -> Load:
    """Bytes of a JPEG into a row, uint8 (px, px, 3)."""
    from PIL import Image

    admit_pixels(Limits.max_pixels)
    gap = _THUMBNAIL_GAP if variant == "thumbnail" else None
    side = px * (gap or float(variant))

    def load(data: bytes, row: PixelArray) -> None:
        image = Image.open(io.BytesIO(data))
        _, box = image.draft("RGB", (side, side)) or (None, None)  # type: ignore[arg-type]
        full = image.convert("RGB")
        row[...] = np.asarray(full.resize((px, px), Image.Resampling.BILINEAR, box, gap))

    return load


#: Variant → its configuration in words.
VARIANTS = {
    "1.25": "draft at margin 1.25, its box, resize(BILINEAR)",
    "1": "draft at margin 1, its box, resize(BILINEAR)",
    "2": "draft at margin 2, its box, resize(BILINEAR)",
    "thumbnail": "draft at margin 2.0, its box, resize(BILINEAR, reducing_gap=2)",
}
LOADER = dataloader(
    "pil-draft",
    "DataLoader + PIL draft",
    load_function,
    VARIANTS,
    library=lambda: version("pillow"),
)
