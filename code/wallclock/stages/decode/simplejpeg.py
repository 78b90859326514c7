"""Decoder `simplejpeg`: a thin binding with a libjpeg-turbo of its own; can reuse its buffer."""

from typing import TYPE_CHECKING, Any

from wallclock.stages.decode.decoder import Decode, Decoder
from wallclock.stages.pixels import PixelArray

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: libjpeg-turbo writes a row that begins at a multiple of so many bytes past the caches
#: (jdcolext-avx2.asm: vmovntdq), and the resize would fetch it back from memory.
_STREAMED_AT = 32


def _cached_buffer(size: int) -> "npt.NDArray[np.uint8]":
    """Uninitialized memory at an odd address: no row of an even number of bytes is streamed."""
    import numpy as np

    memory = np.empty(size + _STREAMED_AT, dtype=np.uint8)
    first = (1 - memory.ctypes.data) % _STREAMED_AT
    return memory[first : first + size]


def _make(reuse: bool) -> Decode:
    import numpy as np
    import simplejpeg

    parse, decode_jpeg = simplejpeg.decode_jpeg_header, simplejpeg.decode_jpeg
    buffer = np.empty(0, dtype=np.uint8)

    def decode(data: bytes, scale: int = 1, size: tuple[int, int] | None = None) -> PixelArray:
        nonlocal buffer
        options: dict[str, Any] = {"strict": True}
        if scale > 1 or reuse:
            if size is not None:
                width, height = size
            else:
                height, width = parse(data)[:2]
            if scale > 1:
                height, width = -(-height // scale), -(-width // scale)
                # The library's own choice is the smallest scale at or above these.
                options |= {"min_height": height, "min_width": width}
            if reuse and buffer.size < height * width * 3:
                buffer = _cached_buffer(height * width * 3)
        pixels: PixelArray = decode_jpeg(data, "RGB", buffer=buffer if reuse else None, **options)
        return pixels

    return decode


_CODEC = "libjpeg-turbo in simplejpeg"
DECODER = Decoder(
    "simplejpeg", "simplejpeg", ("simplejpeg",), _make, scales=True, strict=True, codec=_CODEC
)
