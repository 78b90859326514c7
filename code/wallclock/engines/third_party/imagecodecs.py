"""imagecodecs' libjpeg-turbo binding; it does not resize, so OpenCV does.

https://github.com/cgohlke/imagecodecs#readme: `jpeg8_decode` takes bytes and returns an array.
Variants: OpenCV's interpolation. `linear` is the paper's and does not antialias.
"""

from wallclock.engines.third_party._interface import import_or_unavailable, version
from wallclock.engines.third_party._torch import Load, dataloader
from wallclock.stages.pixels import Pixels


def _make(px: int, variant: str) -> Load:
    import cv2

    codecs = import_or_unavailable("imagecodecs")
    flag = cv2.INTER_LINEAR if variant == "linear" else cv2.INTER_AREA

    def load(data: bytes, row: Pixels) -> None:
        pixels = codecs.jpeg8_decode(data, outcolorspace="RGB")
        cv2.resize(pixels, (px, px), dst=row, interpolation=flag)

    return load


LOADER = dataloader(
    "imagecodecs",
    "DataLoader + imagecodecs",
    _make,
    lambda variant: f"jpeg8_decode, cv2 INTER_{(variant or 'area').upper()}",
    lambda: version("imagecodecs"),
    ("imagecodecs",),
    ("area", "linear"),
)
