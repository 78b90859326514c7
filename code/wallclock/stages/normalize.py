"""Stage `normalize`: uint8 RGB to the float32 that the model was trained on."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.stages.pixels import FloatArray, PixelArray

_SCALE = np.float32(1 / 255)


def make(mean: Sequence[float], std: Sequence[float]) -> Callable[[PixelArray], FloatArray]:
    """(pixel / 255 - mean) / std by channel: uint8 (h, w, c) → contiguous float32 (c, h, w)."""
    means, deviations = np.array(mean, dtype=np.float32), np.array(std, dtype=np.float32)

    def to_float_chw(pixels: PixelArray) -> FloatArray:
        normalized = (pixels.astype(np.float32) * _SCALE - means) / deviations
        return np.ascontiguousarray(normalized.transpose(2, 0, 1))

    return to_float_chw


def make_lookup(
    mean: Sequence[float], std: Sequence[float]
) -> Callable[[PixelArray, npt.NDArray[Any]], None]:
    """The same values, looked up, into a row (c, h, w) of a type of `store`: 256 a channel."""
    table = lru_cache(partial(levels, mean, std))

    def write(pixels: PixelArray, row: npt.NDArray[Any]) -> None:
        for channel, channel_values in enumerate(table(row.dtype)):
            # No level is out of range; the default mode would copy the result once more.
            np.take(channel_values, pixels[..., channel], out=row[channel], mode="clip")

    return write


def levels(mean: Sequence[float], std: Sequence[float], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """What each of the 256 levels becomes, (c, 256), in one of the types that `store` has."""
    pixels = np.arange(256, dtype=np.uint8).reshape(-1, 1, 1).repeat(len(mean), axis=2)
    values = make(mean, std)(pixels)[..., 0]
    table = np.empty(values.shape, dtype)
    store(values, table)
    return table


def store(values: FloatArray, row: npt.NDArray[Any]) -> None:
    """Write float32 into float32, float16, or uint16 as bfloat16: the upper half, rounded."""
    if row.dtype != np.uint16:
        row[...] = values
        return
    bits = values.view(np.uint32)
    row[...] = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16


def on_device(mean: Sequence[float], std: Sequence[float], device: str) -> Callable[[Any], Any]:
    """The same for a batch on a device: uint8 (n, h, w, c) → float32 (n, c, h, w)."""
    import torch

    def by_channel(values: Any) -> Any:
        return torch.tensor(values, dtype=torch.float32, device=device).view(1, -1, 1, 1)

    shift = by_channel([-255 * value for value in mean])
    scale = by_channel([1 / (255 * value) for value in std])

    def normalize(pixels: Any) -> Any:
        return (pixels.permute(0, 3, 1, 2).float() + shift) * scale

    return normalize
