"""Stage `decode`: JPEG bytes to an RGB array, by libraries that agree on the pixels.

One policy for all of them:
- The result is an array, as in the paper's comparison, so that the stage means the same in every
  recipe.
- RGB order, 8 bits; grayscale becomes RGB.
- EXIF orientation is ignored: pixels come as they are stored. (Pillow and libjpeg-turbo do so by
  default; OpenCV rotates unless a flag forbids it.)
- The accurate integer DCT and smooth ("fancy") chroma upsampling, libjpeg-turbo's defaults.
- Damage is an error: libjpeg-turbo's warnings included.
- Anything but a 1- or 3-component JPEG (PNG, WebP, GIF, CMYK) is decoded by Pillow in every recipe;
  the records count such images. Alpha is dropped, the first frame counts, 16 bits become 8.

A recipe may ask for less than the full size (`Scaling`): libjpeg then computes 4, 2 or 1 of each
block's 8 rows and columns from its low frequencies. Other scales than these powers of two cost more
than they save: libjpeg-turbo has no vector code for them (`benchmarks/fast.py`).

Importing this package imports no image library: a decoder imports its own when it is made.
"""

from __future__ import annotations

from importlib import import_module

from wallclock.errors import Unavailable, check_name
from wallclock.stages.decode.base import Decode, Decoder, Scaling
from wallclock.stages.pixels import Pixels

__all__ = ["CPU_DECODERS", "DECODERS", "NAMES", "Decode", "Decoder", "Scaling"]

#: The modules of this package that define a `DECODER`, in the order of tables and figures.
_MODULES = ("pil", "opencv", "turbojpeg", "simplejpeg", "nvjpeg")

DECODERS: dict[str, Decoder] = {
    name: import_module(f"{__name__}.{name}").DECODER for name in _MODULES
}
NAMES = tuple(DECODERS)
#: The decoders that are compared with each other.
CPU_DECODERS = tuple(name for name, decoder in DECODERS.items() if decoder.device == "cpu")

#: Decoder → the entry of `provenance.versions()` for the codec it runs.
LIBRARY_OF = {name: decoder.codec or decoder.libraries[0] for name, decoder in DECODERS.items()}


def make(name: str, scaling: Scaling | None = None, *, reuse: bool = False) -> Decode:
    """Return the decoder called `name`: bytes of a 1- or 3-component JPEG → uint8 (h, w, 3).

    The decoder raises `ImageError` for damage.

    Args:
        scaling: how far below its full size an image may be decoded; None: not at all.
        reuse: decode into a buffer of the decoder's own where the library can; pixels are then
            valid until the next call, and the decoder belongs to one thread.

    Raises:
        UserError: an unknown name.
        Unavailable: the library is not installed, or `scaling` is given and it cannot scale.
    """
    decoder = DECODERS[check_name(name, NAMES, "decoder")]
    if scaling is not None and not decoder.scales:
        able = ", ".join(name for name in NAMES if DECODERS[name].scales)
        raise Unavailable(f"decoder={name} decodes to full size only; dct_scale=auto is for {able}")
    return decoder.make(scaling, reuse)


def name_of(decode: Decode) -> str:
    """The name of the decoder that made `decode`, read back from the function itself."""
    return decode.__module__.rpartition(".")[2]


def decode_other(data: bytes) -> Pixels:
    """Decode PNG, WebP, GIF or CMYK JPEG bytes to uint8 (h, w, 3); raises `ImageError`."""
    return DECODERS["pil"].make(None, False)(data)
