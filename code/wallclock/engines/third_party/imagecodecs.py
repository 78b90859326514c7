"""imagecodecs' libjpeg-turbo binding; it does not resize, so OpenCV does, as in the paper's recipe.

https://github.com/cgohlke/imagecodecs#readme: `jpeg8_decode` takes bytes and returns an array.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt

from wallclock.engines.third_party._interface import (
    LoaderSpec,
    Stream,
    ThirdPartyLoader,
    import_or_unavailable,
    version,
)
from wallclock.engines.third_party._torch import Load, dataloader


def _make(px: int) -> Load:
    import cv2

    codecs = import_or_unavailable("imagecodecs")

    def load(data: bytes) -> npt.NDArray[np.uint8]:
        pixels = codecs.jpeg8_decode(data, outcolorspace="RGB")
        return np.asarray(cv2.resize(pixels, (px, px), interpolation=cv2.INTER_LINEAR))

    return load


def _open(spec: LoaderSpec) -> AbstractContextManager[Stream]:
    import_or_unavailable("imagecodecs")
    settings = "jpeg8_decode, cv2 INTER_LINEAR, uint8"
    return dataloader(spec, _make, version("imagecodecs"), settings)


LOADER = ThirdPartyLoader("imagecodecs", "DataLoader + imagecodecs", _open, ("imagecodecs",))
