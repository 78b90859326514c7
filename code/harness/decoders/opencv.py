"""Decoder `opencv`. Its reduced modes fix the scale before the size is known: full size only."""

from wallclock.errors import ImageError
from wallclock.stages.decode import Decode, Decoder, PixelArray


def _make(reuse: bool) -> Decode:
    import cv2
    import numpy as np

    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION

    def decode(data: bytes, scale: int = 1, size: tuple[int, int] | None = None) -> PixelArray:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
        if pixels is None:
            raise ImageError("decode", "OpenCV could not decode the file")
        return pixels  # type: ignore[return-value]

    return decode


_CODEC = "libjpeg-turbo in opencv"
DECODER = Decoder("opencv", "OpenCV", ("opencv-python-headless",), _make, codec=_CODEC)
