"""kornia-rs: its libjpeg-turbo decoder and its own SIMD resize.

https://pypi.org/project/kornia-rs/: `decode_image_jpegturbo` from bytes, `imgproc.resize`.
"""

from __future__ import annotations

import numpy as np

from wallclock.engines.third_party._interface import import_or_unavailable, version
from wallclock.engines.third_party._torch import Load, dataloader
from wallclock.stages.pixels import Pixels


def _make(px: int) -> Load:
    library = import_or_unavailable("kornia_rs")

    def load(data: bytes) -> Pixels:
        pixels = library.io.decode_image_jpegturbo(data, "rgb")
        return np.asarray(library.imgproc.resize(pixels, (px, px), "bilinear"))

    return load


SETTINGS = "decode_image_jpegturbo, resize bilinear, uint8"
LABEL = "DataLoader + kornia-rs"
LOADER = dataloader("kornia-rs", LABEL, _make, SETTINGS, lambda: version("kornia-rs"), "kornia-rs")
