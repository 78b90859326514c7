"""imagecodecs' libjpeg-turbo binding; it does not resize, so torch or OpenCV does.

https://github.com/cgohlke/imagecodecs#readme: `jpeg8_decode` takes bytes and returns an array.
Variants: `torch` antialiases; OpenCV's `area` averages whole pixels; its `linear`, the paper's,
does not antialias.
"""

from harness.engines.third_party._torch import Load, antialiased, dataloader
from harness.peers import import_or_unavailable
from wallclock.stages.decode import PixelArray

_VARIANTS = {
    "torch": "jpeg8_decode, interpolate(bilinear, antialias)",
    "area": "jpeg8_decode, cv2 INTER_AREA",
    "linear": "jpeg8_decode, cv2 INTER_LINEAR",
}


def _make(px: int, variant: str) -> Load:
    import cv2

    codecs = import_or_unavailable("imagecodecs")
    flag = cv2.INTER_LINEAR if variant == "linear" else cv2.INTER_AREA

    def load(data: bytes, row: PixelArray) -> None:
        pixels = codecs.jpeg8_decode(data, outcolorspace="RGB")
        if variant == "torch":
            row[...] = antialiased(pixels, px)
        else:
            cv2.resize(pixels, (px, px), dst=row, interpolation=flag)

    return load


LOADER = dataloader("imagecodecs", "DataLoader + imagecodecs", _make, _VARIANTS, ("imagecodecs",))
