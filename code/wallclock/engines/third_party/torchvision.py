"""torchvision's `decode_jpeg` and `resize` on uint8 tensors, one torch thread a worker.

https://docs.pytorch.org/vision/stable/transforms.html: uint8 tensors resize faster than floats.
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
    import torch

    io = import_or_unavailable("torchvision.io")
    functional = import_or_unavailable("torchvision.transforms.v2.functional")

    def load(data: bytes) -> npt.NDArray[np.uint8]:
        encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        pixels = io.decode_jpeg(encoded, mode=io.ImageReadMode.RGB)
        resized: npt.NDArray[np.uint8] = (
            functional.resize(pixels, [px, px]).permute(1, 2, 0).numpy()
        )
        return resized

    return load


def _open(spec: LoaderSpec) -> AbstractContextManager[Stream]:
    import_or_unavailable("torchvision", hint="its wheel is built for a CUDA build of torch")
    settings = "decode_jpeg, v2.functional.resize(antialias), uint8"
    return dataloader(spec, _make, version("torchvision"), settings)


LOADER = ThirdPartyLoader("torchvision", "DataLoader + torchvision", _open, ("torchvision",))
