"""Decoder `simplejpeg`: a thin binding with a libjpeg-turbo of its own; can reuse its buffer."""

from typing import Any

from wallclock.stages.decode import Decode, Decoder, Scaling
from wallclock.stages.pixels import Pixels


def _make(scaling: Scaling | None, reuse: bool) -> Decode:
    import numpy as np
    import simplejpeg

    parse, decode_jpeg = simplejpeg.decode_jpeg_header, simplejpeg.decode_jpeg
    buffer = np.empty(0, dtype=np.uint8)

    def decode(data: bytes) -> Pixels:
        nonlocal buffer
        options: dict[str, Any] = {"strict": True}
        if scaling is not None or reuse:
            if scaling is not None and scaling.size:
                width, height = scaling.size
            else:
                height, width = parse(data)[:2]
            n = 1 if scaling is None else scaling.denominator(width, height)
            if n > 1:
                height, width = -(-height // n), -(-width // n)
                # The library's own choice is the smallest scale at or above these.
                options |= {"min_height": height, "min_width": width}
            if reuse and buffer.size < height * width * 3:
                buffer = np.empty(height * width * 3, dtype=np.uint8)
        pixels: Pixels = decode_jpeg(data, "RGB", buffer=buffer if reuse else None, **options)
        return pixels

    return decode


_CODEC = "libjpeg-turbo in simplejpeg"
DECODER = Decoder("simplejpeg", "simplejpeg", ("simplejpeg",), _make, scales=True, codec=_CODEC)
