"""Stage `normalize`: uint8 RGB to the float32 that the model was trained on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wallclock.stages.pixels import Pixels

#: ImageNet channel means and standard deviations, of pixels in [0, 1], RGB: the values in
#: facebook/dinov2-small's preprocessor_config.json.
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)

_SCALE = np.float32(1 / 255)


#: The same as (pixel + shift) * scale for each channel, for a device to do.
SHIFT_SCALE = ((-255 * MEAN).tolist(), (1 / (255 * STD)).tolist())


def to_float_chw(pixels: Pixels) -> npt.NDArray[np.float32]:
    """(pixel / 255 - mean) / std, as contiguous float32 of shape (3, height, width)."""
    normalized = (pixels.astype(np.float32) * _SCALE - MEAN) / STD
    return np.ascontiguousarray(normalized.transpose(2, 0, 1))
