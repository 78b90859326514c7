"""OpenCV's resize, which is compared with the product's own: importing this module adds it.

`linear`, `cubic` and `lanczos` sample the full-resolution image without antialiasing; only `area`
averages. That is why the recipes do not compute the same pixels, and why every table has the PSNR.
It takes whole pixels alone, of RGB.
"""

from collections.abc import Callable
from typing import Any

from wallclock.stages.decode import PixelArray
from wallclock.stages.resize import RESIZERS, Full, Resizer


class OpenCV(Resizer):
    """See `Resizer`."""

    name = "opencv"

    def __init__(self, interpolation: str, size: tuple[int, int]) -> None:
        import cv2

        super().__init__(interpolation, size)
        self._flag: int = getattr(
            cv2, f"INTER_{interpolation.upper()}".replace("LANCZOS", "LANCZOS4")
        )
        self._resize: Callable[..., Any] = cv2.resize

    def resize_into(self, destination: PixelArray, pixels: PixelArray, full: Full = None) -> None:
        """By OpenCV."""
        self._resize(pixels, self._size[::-1], destination, interpolation=self._flag)


RESIZERS[OpenCV.name] = OpenCV
