"""kornia-rs: its libjpeg-turbo decoder and its own SIMD resize, or torch's.

https://pypi.org/project/kornia-rs/: `decode_image_jpegturbo` from bytes, `imgproc.resize`. Of its
interpolations on uint8, `antialias` shapes bicubic and lanczos; bilinear does not antialias.
"""

from harness.engines.third_party._torch import Load, antialiased, dataloader
from harness.peers import import_or_unavailable
from wallclock.stages.decode import PixelArray


def _make(px: int, variant: str) -> Load:
    library = import_or_unavailable("kornia_rs")

    def load(data: bytes, row: PixelArray) -> None:
        pixels = library.io.decode_image_jpegturbo(data, "rgb")
        if variant == "torch":
            row[...] = antialiased(pixels, px)
        else:
            row[...] = library.imgproc.resize(pixels, (px, px), variant)

    return load


LOADER = dataloader(
    "kornia-rs",
    "DataLoader + kornia-rs",
    _make,
    {name: f"decode_image_jpegturbo, resize {name}" for name in ("torch", "bicubic", "bilinear")},
    ("kornia-rs",),
)
