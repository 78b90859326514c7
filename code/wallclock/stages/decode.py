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

A recipe may ask for less than the full size (`Scaling`): libjpeg then computes 4, 2 or 1 of each block's
8 rows and columns from its low frequencies. Other scales than these powers of two cost more than they
save: libjpeg-turbo has no vector code for them (`benchmarks/fast_parts.py`).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from wallclock import native
from wallclock.errors import ImageError, Unavailable, check_name
from wallclock.stages.pixels import Pixels

Decode: TypeAlias = Callable[[bytes], Pixels]


@dataclass(frozen=True)
class Scaling:
    """Decode to the smallest of 1/8, 1/4, 1/2 and 1 whose sides are both at least `margin` times `target` px."""

    target: int
    margin: float

    def denominator(self, width: int, height: int) -> int:
        """8, 4, 2 or 1, for an image of this size in the file."""
        least = max(self.margin, 1.0) * self.target
        return next(
            (n for n in (8, 4, 2) if -(-width // n) >= least and -(-height // n) >= least), 1
        )


def make(name: str, scaling: Scaling | None = None, *, reuse: bool = False) -> Decode:
    """Return the decoder called `name`: bytes of a 1- or 3-component JPEG → uint8 (h, w, 3).

    The decoder raises `ImageError` for damage. An unknown name is a `UserError`; a library that is
    not installed, or that cannot scale where it is asked to, `Unavailable`.

    Args:
        scaling: how far below its full size an image may be decoded; None: not at all.
        reuse: decode into memory of the decoder's own where the library can; a picture is then
            valid until the next call, and the decoder belongs to one thread.
    """
    check_name(name, NAMES, "decoder")
    if scaling is not None and name not in SCALING_DECODERS:
        raise Unavailable(
            f"decoder={name} decodes to full size only; dct_scale=auto takes {_SCALING_NAMES}"
        )
    return {**DECODERS, **GPU_DECODERS}[name](scaling, reuse)


def decode_other(data: bytes) -> Pixels:
    """Decode PNG, WebP, GIF or CMYK JPEG bytes; raises `ImageError`."""
    return _pillow(None, False)(data)


def _pillow(scaling: Scaling | None, reuse: bool) -> Decode:
    # Sizes were checked against the pixel limit when the manifest was made; Pillow's own limit
    # would warn, or refuse, a second time at another size.
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


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        # Pillow clips 16-bit samples to 255 on conversion; the high byte is the picture.
        high = (np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)
        return Image.fromarray(high).convert("RGB")
    return image.convert("RGB")


def _opencv(scaling: Scaling | None, reuse: bool) -> Decode:
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


def _turbojpeg(scaling: Scaling | None, reuse: bool) -> Decode:
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
        factor = None
        if scaling is not None:
            width, height, _, _ = decoder.decode_header(data)
            n = scaling.denominator(width, height)
            factor = (1, n) if n > 1 else None
        pixels: Pixels = decoder.decode(data, turbojpeg.TJPF_RGB, factor)
        return pixels

    return decode


def _simplejpeg(scaling: Scaling | None, reuse: bool) -> Decode:
    import simplejpeg

    parse, decode_jpeg = simplejpeg.decode_jpeg_header, simplejpeg.decode_jpeg
    buffer = np.empty(0, dtype=np.uint8)

    def decode(data: bytes) -> Pixels:
        nonlocal buffer
        least_height = least_width = 0
        try:
            if scaling is not None or reuse:
                height, width = parse(data)[:2]
                n = 1 if scaling is None else scaling.denominator(width, height)
                if n > 1:
                    height, width = -(-height // n), -(-width // n)
                    # The library's own choice is the smallest scale at or above these.
                    least_height, least_width = height, width
                if reuse and buffer.size < height * width * 3:
                    buffer = np.empty(height * width * 3, dtype=np.uint8)
            pixels: Pixels = decode_jpeg(
                data,
                "RGB",
                min_height=least_height,
                min_width=least_width,
                buffer=buffer if reuse else None,
                strict=True,
            )
        except ValueError as error:
            raise ImageError("decode", f"simplejpeg: {error}") from error
        return pixels

    return decode


def _nvjpeg(scaling: Scaling | None, reuse: bool) -> Decode:
    """The GPU decodes, through torchvision; the picture comes back, so that all that follows is the same."""
    try:
        from torchvision.io import ImageReadMode, decode_jpeg
    except (ImportError, RuntimeError) as error:
        raise Unavailable(
            f"torchvision, whose nvJPEG decodes on the GPU, is not here: {error}"
        ) from error
    import torch

    if not torch.cuda.is_available():
        raise Unavailable(f"nvJPEG needs a CUDA GPU, and torch {torch.__version__} sees none")
    return bind_nvjpeg(lambda data: decode_jpeg(data, ImageReadMode.RGB, device="cuda"))


def bind_nvjpeg(decode_jpeg: Callable[[Any], Any]) -> Decode:
    """Around a function that takes a uint8 tensor of a file's bytes and returns uint8 (3, h, w) on the device."""
    import torch

    def decode(data: bytes) -> Pixels:
        try:
            # A bytearray: torch warns of memory that it could not write to.
            picture = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        except RuntimeError as error:
            raise ImageError("decode", f"nvJPEG: {str(error).splitlines()[0]}") from error
        pixels: Pixels = picture.permute(1, 2, 0).contiguous().cpu().numpy()
        return pixels

    return decode


DECODERS: dict[str, Callable[[Scaling | None, bool], Decode]] = {
    "pil": _pillow,
    "opencv": _opencv,
    "turbojpeg": _turbojpeg,
    "simplejpeg": _simplejpeg,
}

#: Not part of the comparison of libraries on a CPU.
GPU_DECODERS: dict[str, Callable[[Scaling | None, bool], Decode]] = {"nvjpeg": _nvjpeg}
NAMES = (*DECODERS, *GPU_DECODERS)

#: Those that can leave high frequencies out; OpenCV's reduced modes fix the scale before the size is known.
SCALING_DECODERS = ("simplejpeg", "turbojpeg", "pil")
_SCALING_NAMES = ", ".join(SCALING_DECODERS)

#: Which entry of `provenance.versions` names the libjpeg-turbo that a decoder runs.
LIBRARY_OF = {
    "pil": "libjpeg-turbo in pillow",
    "opencv": "libjpeg-turbo in opencv",
    "turbojpeg": "libturbojpeg",
    "simplejpeg": "libjpeg-turbo in simplejpeg",
}
