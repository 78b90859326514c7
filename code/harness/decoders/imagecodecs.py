"""Decoder `imagecodecs`: a binding with its own libjpeg-turbo; `make setup-peers` installs it.

Like OpenCV it makes the rest of a truncated file gray; validation refuses such files.
"""

from harness.peers import import_or_unavailable
from wallclock.stages.decode import Decode, Decoder, PixelArray


def _make(reuse: bool) -> Decode:
    decode_jpeg = import_or_unavailable("imagecodecs").jpeg8_decode

    def decode(data: bytes, scale: int = 1, size: tuple[int, int] | None = None) -> PixelArray:
        pixels: PixelArray = decode_jpeg(data, outcolorspace="RGB")
        return pixels

    return decode


DECODER = Decoder("imagecodecs", "imagecodecs", ("imagecodecs",), _make, optional=True)
