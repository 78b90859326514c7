"""kornia-rs: its libjpeg-turbo decoder and its own SIMD resize, or torch's.

https://pypi.org/project/kornia-rs/: `decode_image_jpegturbo` from bytes, `imgproc.resize`. Of its
interpolations on uint8, `antialias` shapes bicubic and lanczos; bilinear does not antialias.
"""

from harness.engines.third_party._interface import version
from harness.engines.third_party._torch import Load, antialiased, dataloader
from harness.peers import import_or_unavailable
from wallclock.stages.decode import PixelArray


def _make(px: int, variant: str) -> Load:
    library = import_or_unavailable("kornia_rs")
    interpolation = variant or "torch"

    def load(data: bytes, row: PixelArray) -> None:
        pixels = library.io.decode_image_jpegturbo(data, "rgb")
        if interpolation == "torch":
            row[...] = antialiased(pixels, px)
        else:
            row[...] = library.imgproc.resize(pixels, (px, px), interpolation)

    return load


LOADER = dataloader(
    "kornia-rs",
    "DataLoader + kornia-rs",
    _make,
    lambda variant: f"decode_image_jpegturbo, resize {variant or 'torch'}",
    lambda: version("kornia-rs"),
    ("kornia-rs",),
    ("torch", "bicubic", "bilinear"),
)
