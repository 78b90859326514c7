"""kornia-rs: its libjpeg-turbo decoder and its own SIMD resize.

https://pypi.org/project/kornia-rs/: `decode_image_jpegturbo` from bytes, `imgproc.resize`.
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
    library = import_or_unavailable("kornia_rs")

    def load(data: bytes) -> npt.NDArray[np.uint8]:
        pixels = library.io.decode_image_jpegturbo(data, "rgb")
        return np.asarray(library.imgproc.resize(pixels, (px, px), "bilinear"))

    return load


def _open(spec: LoaderSpec) -> AbstractContextManager[Stream]:
    import_or_unavailable("kornia_rs")
    settings = "decode_image_jpegturbo, resize bilinear, uint8"
    return dataloader(spec, _make, version("kornia-rs"), settings)


LOADER = ThirdPartyLoader("kornia-rs", "DataLoader + kornia-rs", _open, ("kornia-rs",))
