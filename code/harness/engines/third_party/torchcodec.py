"""torchcodec's `decode_jpeg`, which takes over from torchvision's, and torch's antialiased resize.

https://meta-pytorch.org/torchcodec: `decoders.decode_jpeg` from bytes to a uint8 tensor (3, h, w).
"""

from harness.engines.third_party._torch import Load, antialiased, dataloader
from harness.engines.third_party.torchvision import HINT
from harness.peers import import_or_unavailable
from wallclock.stages.decode import PixelArray


def _make(px: int, variant: str) -> Load:
    decoders = import_or_unavailable("torchcodec.decoders", hint=HINT)

    def load(data: bytes, row: PixelArray) -> None:
        row[...] = antialiased(decoders.decode_jpeg(data).permute(1, 2, 0).numpy(), px)

    return load


LOADER = dataloader(
    "torchcodec",
    "DataLoader + torchcodec",
    _make,
    {"": "decode_jpeg, interpolate(bilinear, antialias)"},
    ("torchcodec",),
)
