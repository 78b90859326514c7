"""Decoder `kornia_rs`: Rust's binding of libjpeg-turbo; `make setup-peers` installs it."""

from harness.peers import import_or_unavailable
from wallclock.stages.decode import Decode, Decoder, PixelArray


def _make(reuse: bool) -> Decode:
    decode_jpeg = import_or_unavailable("kornia_rs").io.decode_image_jpegturbo

    def decode(data: bytes, scale: int = 1, size: tuple[int, int] | None = None) -> PixelArray:
        pixels: PixelArray = decode_jpeg(data, "rgb")
        return pixels

    return decode


DECODER = Decoder("kornia_rs", "kornia-rs", ("kornia-rs",), _make, optional=True)
