"""Decoder `simplejpeg`: a thin binding with a libjpeg-turbo of its own; can reuse its buffer."""

from typing import TYPE_CHECKING, Any

from wallclock.stages.decode.decoder import MODES, Decode, Decoder
from wallclock.stages.pixels import PixelArray

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: The library's names; an opaque alpha channel is added, grey is the luma of YCbCr.
_COLOURS = {"RGB": "RGB", "L": "GRAY", "RGBA": "RGBA"}
#: libjpeg-turbo writes a row that begins at a multiple of so many bytes past the caches
#: (jdcolext-avx2.asm: vmovntdq), and the resize would fetch it back from memory.
_STREAMED_AT = 32


def _cached_buffer(size: int) -> "npt.NDArray[np.uint8]":
    """Uninitialized memory at an odd address: no row of an even number of bytes is streamed."""
    import numpy as np

    memory = np.empty(size + _STREAMED_AT, dtype=np.uint8)
    first = (1 - memory.ctypes.data) % _STREAMED_AT
    return memory[first : first + size]


def _make(reuse: bool, mode: str = "RGB") -> Decode:
    import numpy as np
    import simplejpeg

    colours, channels = _COLOURS[mode], MODES[mode]

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
            if reuse and buffer.size < height * width * channels:
                buffer = _cached_buffer(height * width * channels)
        pixels: PixelArray = decode_jpeg(data, colours, buffer=buffer if reuse else None, **options)
        return pixels

    return decode


_CODEC = "libjpeg-turbo in simplejpeg"
DECODER = Decoder(
    "simplejpeg",
    "simplejpeg",
    ("simplejpeg",),
    _make,
    scales=True,
    strict=True,
    codec=_CODEC,
    modes=tuple(_COLOURS),
)
