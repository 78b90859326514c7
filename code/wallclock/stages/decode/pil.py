"""Decoder `pil`: Pillow, called as everyone calls it; `convert` and `asarray` both copy."""

from __future__ import annotations

import io
from typing import Any

from wallclock.errors import ImageError
from wallclock.stages.decode import Decode, Decoder, Scaling
from wallclock.stages.pixels import Pixels


def _make(scaling: Scaling | None, reuse: bool) -> Decode:
    import numpy as np
    from PIL import Image

    # Validation has checked sizes against the pixel limit; Pillow's own limit would warn, or
    # refuse, a second time at another size.
    Image.MAX_IMAGE_PIXELS = None

    def decode(data: bytes) -> Pixels:
        try:
            with Image.open(io.BytesIO(data)) as image:
                if scaling is not None:
                    n = scaling.denominator(*image.size)
                    image.draft("RGB", (image.width // n, image.height // n))
                # `open` only reads the header; the decoding happens here.
                image.load()
                return np.asarray(_to_rgb(image))
        except (OSError, ValueError, SyntaxError) as error:
            raise ImageError("decode", f"Pillow: {error}") from error

    return decode


def _to_rgb(image: Any) -> Any:
    if not image.mode.startswith("I"):
        return image.convert("RGB")
    import numpy as np
    from PIL import Image

    # Pillow clips 16-bit samples to 255 on conversion; the high byte is the image.
    high = (np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)
    return Image.fromarray(high).convert("RGB")


DECODER = Decoder("pil", "PIL", ("pillow",), _make, scales=True, codec="libjpeg-turbo in pillow")
