"""Decoder `nvjpeg`: the GPU decodes, through torchvision; pixels are copied back to the host."""

from collections.abc import Callable
from typing import Any

from wallclock import cuda
from wallclock.errors import ImageError, Unavailable, first_line
from wallclock.stages.decode import Decode, Decoder, Scaling
from wallclock.stages.pixels import Pixels


def _make(scaling: Scaling | None, reuse: bool) -> Decode:
    try:
        from torchvision.io import ImageReadMode, decode_jpeg
    except (ImportError, RuntimeError) as error:
        raise Unavailable(f"nvJPEG needs torchvision, which does not load: {error}") from error
    cuda.require("nvJPEG")
    return bind(lambda data: decode_jpeg(data, ImageReadMode.RGB, device="cuda"))


def bind(decode_jpeg: Callable[[Any], Any]) -> Decode:
    """Wrap a function from a file's bytes, a uint8 tensor, to uint8 (3, h, w) on the device."""
    import torch

    def decode(data: bytes) -> Pixels:
        try:
            # A bytearray: torch warns about memory that it cannot write to.
            image = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        except RuntimeError as error:
            raise ImageError("decode", f"nvJPEG: {first_line(error)}") from error
        pixels: Pixels = image.permute(1, 2, 0).contiguous().cpu().numpy()
        return pixels

    return decode


DECODER = Decoder("nvjpeg", "nvJPEG", ("torchvision",), _make, device="cuda")
