"""Decoder `imagecodecs`: a binding with a libjpeg-turbo of its own; `make setup-peers` installs it."""

from wallclock.stages.decode import Decode, Decoder, Scaling, extra
from wallclock.stages.pixels import Pixels


def _make(scaling: Scaling | None, reuse: bool) -> Decode:
    decode_jpeg = extra("imagecodecs").jpeg8_decode

    def decode(data: bytes) -> Pixels:
        pixels: Pixels = decode_jpeg(data, outcolorspace="RGB")
        return pixels

    return decode


DECODER = Decoder("imagecodecs", "imagecodecs", ("imagecodecs",), _make, optional=True)
