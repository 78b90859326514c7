"""Decoder `imagecodecs`: a binding with its own libjpeg-turbo; `make setup-peers` installs it.

Like OpenCV it makes the rest of a truncated file gray; validation refuses such files.
"""

from wallclock.errors import import_or_unavailable
from wallclock.stages.decode import Decode, Decoder, Scaling
from wallclock.stages.pixels import Pixels


def _make(scaling: Scaling | None, reuse: bool) -> Decode:
    decode_jpeg = import_or_unavailable("imagecodecs").jpeg8_decode

    def decode(data: bytes) -> Pixels:
        pixels: Pixels = decode_jpeg(data, outcolorspace="RGB")
        return pixels

    return decode


DECODER = Decoder("imagecodecs", "imagecodecs", ("imagecodecs",), _make, optional=True)
