"""Decoder `kornia_rs`: Rust's binding of libjpeg-turbo; `make setup-peers` installs it."""

from wallclock.errors import import_or_unavailable
from wallclock.stages.decode import Decode, Decoder, Scaling
from wallclock.stages.pixels import Pixels


def _make(scaling: Scaling | None, reuse: bool) -> Decode:
    decode_jpeg = import_or_unavailable("kornia_rs").io.decode_image_jpegturbo

    def decode(data: bytes) -> Pixels:
        pixels: Pixels = decode_jpeg(data, "rgb")
        return pixels

    return decode


DECODER = Decoder("kornia_rs", "kornia-rs", ("kornia-rs",), _make, optional=True)
