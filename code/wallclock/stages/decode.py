"""Stage `decode`: JPEG bytes to an RGB array, by four libraries that agree on the pixels.

One policy for all of them:
- The result is an array, as in the paper's comparison, so that the stage means the same in every
  recipe. Pillow is called as everyone calls it, `np.asarray(image.convert("RGB"))`: both copy.
- RGB order, 8 bits; grayscale becomes RGB.
- EXIF orientation is ignored: the pixels come as they are stored. (Pillow and libjpeg-turbo do so
  by nature; OpenCV rotates unless told.)
- The accurate integer DCT and smooth ("fancy") chroma upsampling, libjpeg-turbo's defaults.
- Damage is an error: libjpeg-turbo's warnings included.
- What is not a 1- or 3-component JPEG (PNG, WebP, GIF, CMYK) is decoded by Pillow in every recipe;
  the records say how many there were. Alpha is dropped, the first frame counts, 16 bits become 8.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from PIL import Image

from wallclock import native
from wallclock.errors import ImageError, Unavailable, check_name
from wallclock.stages.pixels import Pixels

Decode: TypeAlias = Callable[[bytes], Pixels]


def make(name: str) -> Decode:
    """Return the decoder called `name`: bytes of a 1- or 3-component JPEG → uint8 (h, w, 3).

    The decoder raises `ImageError` for damage. An unknown name is a `UserError`; a library that is
    not installed, `Unavailable`.
    """
    check_name(name, DECODERS, "decoder")
    return DECODERS[name]()


def decode_other(data: bytes) -> Pixels:
    """Decode PNG, WebP, GIF or CMYK JPEG bytes; raises `ImageError`."""
    return _pillow()(data)


def _pillow() -> Decode:
    # Sizes were checked against the pixel limit when the manifest was made; Pillow's own limit
    # would warn, or refuse, a second time at another size.
    Image.MAX_IMAGE_PIXELS = None

    def decode(data: bytes) -> Pixels:
        try:
            with Image.open(io.BytesIO(data)) as image:
                # `open` only reads the header; the decoding happens here.
                image.load()
                return np.asarray(_to_rgb(image))
        except (OSError, ValueError, SyntaxError) as error:
            raise ImageError("decode", f"Pillow: {error}") from error

    return decode


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        # Pillow clips 16-bit samples to 255 on conversion; the high byte is the picture.
        high = (np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)
        return Image.fromarray(high).convert("RGB")
    return image.convert("RGB")


def _opencv() -> Decode:
    import cv2

    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION

    def decode(data: bytes) -> Pixels:
        try:
            pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
        except cv2.error as error:
            raise ImageError("decode", f"OpenCV: {error.err or error}") from error
        if pixels is None:
            raise ImageError("decode", "OpenCV could not decode the file")
        return pixels  # type: ignore[return-value]

    return decode


def _turbojpeg() -> Decode:
    library = native.find_libturbojpeg()
    if library is None:
        raise Unavailable(f"libturbojpeg is not installed: {native.INSTALL_HINT}")
    import turbojpeg

    class Strict(turbojpeg.TurboJPEG):  # type: ignore[misc]
        """PyTurboJPEG 1.8 only warns when libjpeg-turbo met damage; here that is an error."""

        def _TurboJPEG__report_error(self, handle: int) -> None:  # noqa: N802
            message = self._TurboJPEG__get_error_string(handle)
            raise ImageError("decode", f"libjpeg-turbo: {message}")

    decoder = Strict(library)

    def decode(data: bytes) -> Pixels:
        pixels: Pixels = decoder.decode(data, turbojpeg.TJPF_RGB)
        return pixels

    return decode


def _simplejpeg() -> Decode:
    import simplejpeg

    def decode(data: bytes) -> Pixels:
        try:
            pixels: Pixels = simplejpeg.decode_jpeg(data, "RGB", strict=True)
        except ValueError as error:
            raise ImageError("decode", f"simplejpeg: {error}") from error
        return pixels

    return decode


DECODERS: dict[str, Callable[[], Decode]] = {
    "pil": _pillow,
    "opencv": _opencv,
    "turbojpeg": _turbojpeg,
    "simplejpeg": _simplejpeg,
}

#: Which entry of `provenance.versions` names the libjpeg-turbo that a decoder runs.
LIBRARY_OF = {
    "pil": "libjpeg-turbo in pillow",
    "opencv": "libjpeg-turbo in opencv",
    "turbojpeg": "libturbojpeg",
    "simplejpeg": "libjpeg-turbo in simplejpeg",
}
