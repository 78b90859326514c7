"""Decoder `native`: this package's own, of 8-bit Huffman JPEGs and 8-bit PNGs. Simplejpeg
and Pillow decode other files, and all where it was not compiled, to the same pixels.
"""

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from wallclock import native
from wallclock.errors import image_errors
from wallclock.stages.decode import simplejpeg
from wallclock.stages.decode.decoder import MODES, Decode, Decoder
from wallclock.stages.pixels import PixelArray

PNG = b"\x89PNG"
#: Modes of `MODES` that it decodes to.
MADE = ("RGB", "L")
_of_thread = threading.local()


def fallbacks() -> int:
    """How many images of this thread fell back to another decoder so far."""
    return getattr(_of_thread, "fallbacks", 0)


def count_fallback() -> None:
    """Count one more."""
    _of_thread.fallbacks = fallbacks() + 1


@lru_cache(1024)
def _plan(width: int, height: int, scale: int) -> Any:
    """All of an image of this size in its file, at 1/`scale`."""
    size = -(-height // scale), -(-width // scale)
    return native.find().Plan((height, width), size, denominator=scale), size


def _decoder(reuse: bool, mode: str, is_png: bool) -> Callable[[bytes, int], Any]:
    """Pixels of a file at 1/`scale`, all of them; None: another decoder has to."""
    import numpy as np

    module, channels, memory = native.find(), MODES[mode], np.empty(0, np.uint8)

    def decode(data: bytes, scale: int) -> Any:
        nonlocal memory
        chunk = module.open([data], len(data))
        status, _, _, width, height, sof, *_ = chunk.headers[0]
        if status or is_png == bool(sof):
            return None
        plan, (rows, columns) = _plan(width, height, scale)
        n_bytes = rows * columns * channels
        if not reuse or memory.size < n_bytes:
            memory = np.empty(n_bytes, np.uint8)
        pixels = memory[:n_bytes].reshape(rows, columns, channels)
        return pixels if chunk.fill([plan], [pixels])[0][0] == 0 else None

    return decode


def _make(reuse: bool, mode: str = "RGB") -> Decode:
    other = simplejpeg.DECODER
    decode_otherwise = image_errors("decode", other.label, other.make(reuse, mode))
    return with_fallback(decode_otherwise, reuse, mode, is_png=False)


def with_fallback(decode_otherwise: Decode, reuse: bool, mode: str, *, is_png: bool) -> Decode:
    """A decoder of JPEGs, or of PNGs; `decode_otherwise` decodes what the module does not take."""
    if native.find() is None or mode not in MADE:
        return decode_otherwise
    decode_here = _decoder(reuse, mode, is_png)

    def decode(data: bytes, scale: int = 1, size: tuple[int, int] | None = None) -> PixelArray:
        if is_png and not (isinstance(data, bytes) and data.startswith(PNG)):
            return decode_otherwise(data)
        pixels = decode_here(data, scale)
        if pixels is None:
            count_fallback()
            return decode_otherwise(data, scale, size)
        return pixels  # type: ignore[no-any-return]

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
