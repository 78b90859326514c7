"""Decoder `native`: this package's own, of 8-bit Huffman JPEGs; what it hands over, and all files
where it was not compiled, simplejpeg decodes. The pixels are the same.
"""

import threading
from functools import lru_cache
from typing import Any

from wallclock import native
from wallclock.errors import image_errors
from wallclock.stages.decode import simplejpeg
from wallclock.stages.decode.decoder import MODES, Decode, Decoder
from wallclock.stages.pixels import PixelArray

#: Modes of `MODES` that it decodes to.
MADE = ("RGB", "L")
_of_thread = threading.local()


def handed_over() -> int:
    """How many images this thread has handed over so far."""
    return getattr(_of_thread, "handed_over", 0)


def hand_over() -> None:
    """Count one more."""
    _of_thread.handed_over = handed_over() + 1


@lru_cache(1024)
def _plan(width: int, height: int, scale: int) -> Any:
    """All of an image of this size in its file, at 1/`scale`."""
    size = -(-height // scale), -(-width // scale)
    return native.find().Plan((height, width), size, denominator=scale), size


def _make(reuse: bool, mode: str = "RGB") -> Decode:
    import numpy as np

    other = simplejpeg.DECODER
    decode_otherwise = image_errors("decode", other.label, other.make(reuse, mode))
    module, channels = native.find(), MODES[mode]
    if module is None or mode not in MADE:
        return decode_otherwise
    memory = np.empty(0, np.uint8)

    def decode(data: bytes, scale: int = 1, size: tuple[int, int] | None = None) -> PixelArray:
        nonlocal memory
        chunk = module.open([data], len(data))
        status, _, _, width, height, *_ = chunk.headers[0]
        if status == 0:
            plan, (rows, columns) = _plan(width, height, scale)
            n_bytes = rows * columns * channels
            if not reuse or memory.size < n_bytes:
                memory = np.empty(n_bytes, np.uint8)
            pixels = memory[:n_bytes].reshape(rows, columns, channels)
            if chunk.fill([plan], [pixels])[0][0] == 0:
                return pixels
        hand_over()
        return decode_otherwise(data, scale, size)

    return decode


DECODER = Decoder(
    "native",
    "wallclock",
    ("simplejpeg",),
    _make,
    scales=True,
    strict=True,
    codec=simplejpeg.DECODER.codec,
    modes=simplejpeg.DECODER.modes,
)
