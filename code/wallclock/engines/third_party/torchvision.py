"""torchvision's `decode_jpeg` and `resize` on uint8 tensors, one torch thread a worker.

https://docs.pytorch.org/vision/stable/transforms.html: uint8 tensors resize faster than floats.
"""

from __future__ import annotations

from wallclock.engines.third_party._interface import import_or_unavailable, version
from wallclock.engines.third_party._torch import Load, dataloader
from wallclock.stages.pixels import Pixels


def _make(px: int) -> Load:
    import torch

    hint = "its wheel is built for a CUDA build of torch"
    io = import_or_unavailable("torchvision.io", hint=hint)
    functional = import_or_unavailable("torchvision.transforms.v2.functional", hint=hint)

    def load(data: bytes) -> Pixels:
        encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        pixels = io.decode_jpeg(encoded, mode=io.ImageReadMode.RGB)
        resized: Pixels = functional.resize(pixels, [px, px]).permute(1, 2, 0).numpy()
        return resized

    return load


SETTINGS = "decode_jpeg, v2.functional.resize(antialias), uint8"
LABEL = "DataLoader + torchvision"
LOADER = dataloader(
    "torchvision", LABEL, _make, SETTINGS, lambda: version("torchvision"), "torchvision"
)
