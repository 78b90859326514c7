"""Decoder `pil`: Pillow, called as everyone calls it; `convert` and `asarray` both copy."""

import io
from collections.abc import Callable
from typing import Any

from wallclock.stages.decode.decoder import Decode, Decoder
from wallclock.stages.pixels import PixelArray


def _make(reuse: bool) -> Decode:
    import numpy as np

    open_image = make_image()

    def decode(data: bytes, scale: int = 1, size: tuple[int, int] | None = None) -> PixelArray:
        return np.asarray(open_image(data, scale))

    return decode


def make_image() -> Callable[..., Any]:
    """A decoder that leaves the pixels in Pillow's own image, for Pillow's own resize."""
    from PIL import Image

    # Validation has checked sizes against the pixel limit; Pillow's own limit would warn, or
    # refuse, a second time at another size.
    Image.MAX_IMAGE_PIXELS = None

    def decode_image(data: bytes, scale: int = 1, size: tuple[int, int] | None = None) -> Any:
        with Image.open(io.BytesIO(data)) as image:
            if scale > 1:
                image.draft("RGB", (image.width // scale, image.height // scale))
            # `open` only reads the header; the decoding happens here.
            image.load()
            return _to_rgb(image)

    return decode_image


def _to_rgb(image: Any) -> Any:
    if not image.mode.startswith("I"):
        return image.convert("RGB")
    import numpy as np
    from PIL import Image

    # Pillow clips 16-bit samples to 255 on conversion; the high byte is the image.
    high = (np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)
    return Image.fromarray(high).convert("RGB")


DECODER = Decoder("pil", "PIL", ("pillow",), _make, scales=True, codec="libjpeg-turbo in pillow")
