"""Pillow behind `Image.draft`: libjpeg's scaled decoding, never below the requested size.

https://pillow.readthedocs.io/en/stable/reference/Image.html#PIL.Image.Image.draft
"""

from __future__ import annotations

import io
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt

from wallclock.engines.third_party._interface import LoaderSpec, Stream, ThirdPartyLoader, version
from wallclock.engines.third_party._torch import Load, dataloader


def _make(px: int) -> Load:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None

    def load(data: bytes) -> npt.NDArray[np.uint8]:
        image = Image.open(io.BytesIO(data))
        image.draft("RGB", (px, px))
        return np.asarray(image.convert("RGB").resize((px, px), Image.Resampling.BILINEAR))

    return load


def _open(spec: LoaderSpec) -> AbstractContextManager[Stream]:
    settings = "draft, convert, resize(BILINEAR), uint8"
    return dataloader(spec, _make, version("pillow"), settings)


LOADER = ThirdPartyLoader("pil-draft", "DataLoader + PIL draft", _open)
