"""What a first version does: `Image.open`, `convert`, `resize` with Pillow's antialiased bilinear
filter.
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
        image = Image.open(io.BytesIO(data)).convert("RGB")
        return np.asarray(image.resize((px, px), Image.Resampling.BILINEAR))

    return load


def _open(spec: LoaderSpec) -> AbstractContextManager[Stream]:
    settings = "Image.open, convert, resize(BILINEAR), uint8"
    return dataloader(spec, _make, version("pillow"), settings)


LOADER = ThirdPartyLoader("pil", "DataLoader + PIL", _open)
