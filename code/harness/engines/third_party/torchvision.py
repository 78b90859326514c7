"""torchvision's `decode_jpeg` and `resize` on uint8 tensors, one torch thread a worker.

https://docs.pytorch.org/vision/stable/transforms.html: uint8 tensors resize faster than floats.
"""

from harness.engines.third_party._torch import Load, dataloader
from harness.peers import import_or_unavailable
from wallclock.stages.decode import PixelArray

HINT = "its wheel is built for a CUDA build of torch"


def _make(px: int, variant: str) -> Load:
    import torch

    io = import_or_unavailable("torchvision.io", hint=HINT)
    functional = import_or_unavailable("torchvision.transforms.v2.functional", hint=HINT)

    def load(data: bytes, row: PixelArray) -> None:
        encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        pixels = io.decode_jpeg(encoded, mode=io.ImageReadMode.RGB)
        row[...] = functional.resize(pixels, [px, px]).permute(1, 2, 0).numpy()

    return load


LOADER = dataloader(
    "torchvision",
    "DataLoader + torchvision",
    _make,
    {"": "decode_jpeg, v2.functional.resize(antialias)"},
    ("torchvision",),
)
