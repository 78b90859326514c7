"""What a first version does: `Image.open`, `convert`, `resize` with Pillow's antialiased bilinear
filter.
"""

from __future__ import annotations

import io

import numpy as np

from wallclock.engines.third_party._interface import version
from wallclock.engines.third_party._torch import Load, dataloader
from wallclock.stages.pixels import Pixels


def _make(px: int) -> Load:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None

    def load(data: bytes) -> Pixels:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        return np.asarray(image.resize((px, px), Image.Resampling.BILINEAR))

    return load


SETTINGS = "Image.open, convert, resize(BILINEAR), uint8"
LOADER = dataloader("pil", "DataLoader + PIL", _make, SETTINGS, lambda: version("pillow"))
