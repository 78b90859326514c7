"""Stage `resize`: an RGB array to size × size, by Pillow (antialiased) or OpenCV (as named).

The aspect ratio is not kept: the paper's jobs squash to the model's square input. Pillow's filters
widen with the scale, so all of them antialias. OpenCV's `linear`, `cubic` and `lanczos` sample the
full-resolution picture without antialiasing; only `area` averages. That is why the recipes do not
compute the same pixels, and why every table carries the PSNR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from PIL import Image

from wallclock.errors import ImageError, check_name
from wallclock.stages.pixels import Pixels

Resize: TypeAlias = Callable[[Pixels], Pixels]

_PILLOW = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
_OPENCV = {
    "nearest": "INTER_NEAREST",
    "linear": "INTER_LINEAR",
    "area": "INTER_AREA",
    "cubic": "INTER_CUBIC",
    "lanczos": "INTER_LANCZOS4",
}


def make(name: str, interpolation: str, size: int) -> Resize:
    """Return the resizer called `name`: uint8 (h, w, 3) → uint8 (size, size, 3).

    An unknown resizer or interpolation is a `UserError` with the nearest names.
    """
    check_name(name, RESIZERS, "resizer")
    return RESIZERS[name](interpolation, size)


def _pillow(interpolation: str, size: int) -> Resize:
    resample = _PILLOW[check_name(interpolation, _PILLOW, "interpolation of resizer=pil")]

    def resize(pixels: Pixels) -> Pixels:
        return np.asarray(Image.fromarray(pixels).resize((size, size), resample))

    return resize


def _opencv(interpolation: str, size: int) -> Resize:
    import cv2

    flag: int = getattr(cv2, _OPENCV[check_name(interpolation, _OPENCV, "interpolation of resizer=opencv")])

    def resize(pixels: Pixels) -> Pixels:
        try:
            return cv2.resize(pixels, (size, size), interpolation=flag)  # type: ignore[return-value]
        except cv2.error as error:
            raise ImageError("resize", f"OpenCV: {error.err or error}") from error

    return resize


RESIZERS: dict[str, Callable[[str, int], Resize]] = {"pil": _pillow, "opencv": _opencv}
