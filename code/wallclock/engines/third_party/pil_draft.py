"""Pillow behind `Image.draft`: libjpeg's scaled decoding, never below the requested size.

https://pillow.readthedocs.io/en/stable/reference/Image.html#PIL.Image.Image.draft
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
        image = Image.open(io.BytesIO(data))
        image.draft("RGB", (px, px))
        return np.asarray(image.convert("RGB").resize((px, px), Image.Resampling.BILINEAR))

    return load


SETTINGS = "draft, convert, resize(BILINEAR), uint8"
LABEL = "DataLoader + PIL draft"
LOADER = dataloader("pil-draft", LABEL, _make, SETTINGS, lambda: version("pillow"))
