"""imagecodecs' libjpeg-turbo binding; it does not resize, so OpenCV does, as in the paper's recipe.

https://github.com/cgohlke/imagecodecs#readme: `jpeg8_decode` takes bytes and returns an array.
"""

from __future__ import annotations

import numpy as np

from wallclock.engines.third_party._interface import import_or_unavailable, version
from wallclock.engines.third_party._torch import Load, dataloader
from wallclock.stages.pixels import Pixels


def _make(px: int) -> Load:
    import cv2

    codecs = import_or_unavailable("imagecodecs")

    def load(data: bytes) -> Pixels:
        pixels = codecs.jpeg8_decode(data, outcolorspace="RGB")
        return np.asarray(cv2.resize(pixels, (px, px), interpolation=cv2.INTER_LINEAR))

    return load


SETTINGS = "jpeg8_decode, cv2 INTER_LINEAR, uint8"
LABEL = "DataLoader + imagecodecs"
LOADER = dataloader(
    "imagecodecs", LABEL, _make, SETTINGS, lambda: version("imagecodecs"), "imagecodecs"
)
