"""Stage `normalize`: uint8 RGB to the float32 that the model was trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from wallclock.spec import IMAGENET_MEAN, IMAGENET_STD
from wallclock.stages.pixels import Pixels

MEAN = np.array(IMAGENET_MEAN, dtype=np.float32)
STD = np.array(IMAGENET_STD, dtype=np.float32)

_SCALE = np.float32(1 / 255)


def make(
    mean: Sequence[float], std: Sequence[float]
) -> Callable[[Pixels], npt.NDArray[np.float32]]:
    """Return the normalizer of a model: uint8 (h, w, 3) → contiguous float32 (3, h, w), (pixel / 255 - mean) / std."""
    means, deviations = np.array(mean, dtype=np.float32), np.array(std, dtype=np.float32)

    def to_float_chw(pixels: Pixels) -> npt.NDArray[np.float32]:
        normalized = (pixels.astype(np.float32) * _SCALE - means) / deviations
        return np.ascontiguousarray(normalized.transpose(2, 0, 1))

    return to_float_chw


#: With ImageNet's statistics.
to_float_chw = make(IMAGENET_MEAN, IMAGENET_STD)


def shift_scale(mean: Sequence[float], std: Sequence[float]) -> tuple[list[float], list[float]]:
    """The same as (pixel + shift) * scale for each channel, for a device to do."""
    means, deviations = np.array(mean, dtype=np.float32), np.array(std, dtype=np.float32)
    return (-255 * means).tolist(), (1 / (255 * deviations)).tolist()
