"""Decoder `nvjpeg`: the GPU decodes, through torchvision; pixels are copied back to the host.

torchvision documents a list of files as the fast way (torchvision.io.decode_jpeg): the threads
engine decodes a chunk of a batch in one call.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from wallclock import cuda
from wallclock.errors import ImageError, Unavailable, first_line
from wallclock.stages.decode import Decode, DecodeMany, Decoder, Scaling
from wallclock.stages.pixels import Pixels


def _make(scaling: Scaling | None, reuse: bool) -> Decode:
    return bind(_torchvision())


def _make_many() -> DecodeMany:
    return partial(decode_many, _torchvision())


def _torchvision() -> Callable[[Any], Any]:
    try:
        from torchvision.io import ImageReadMode, decode_jpeg
    except (ImportError, RuntimeError) as error:
        raise Unavailable(f"nvJPEG needs torchvision, which does not load: {error}") from error
    cuda.require("nvJPEG")
    return lambda files: decode_jpeg(files, ImageReadMode.RGB, device="cuda")


def bind(decode_jpeg: Callable[[Any], Any]) -> Decode:
    """Wrap a function from files, uint8 tensors, to images, uint8 (3, h, w) on the device."""

    def decode(data: bytes) -> Pixels:
        result = decode_many(decode_jpeg, [data])[0]
        if isinstance(result, ImageError):
            raise result
        pixels: Pixels = result
        return pixels

    return decode


def decode_many(decode_jpeg: Callable[[Any], Any], files: Sequence[bytes]) -> list[Any]:
    """Decode files in one call; one by one where that fails, because it does not say for which."""
    import torch

    try:
        # A bytearray: torch warns about memory that it cannot write to.
        data = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in files]
        images = decode_jpeg(data)
    except (RuntimeError, ValueError) as error:
        if len(files) == 1:
            return [ImageError("decode", f"nvJPEG: {first_line(error)}")]
        return [result for file in files for result in decode_many(decode_jpeg, [file])]
    return [image.permute(1, 2, 0).contiguous().cpu().numpy() for image in images]


DECODER = Decoder("nvjpeg", "nvJPEG", ("torchvision",), _make, device="cuda", make_many=_make_many)
