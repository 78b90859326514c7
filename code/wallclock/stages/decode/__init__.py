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
block's 8 rows and columns. Other scales than these powers of two cost more than they save:
libjpeg-turbo has no vector code for them (`benchmarks/fast.py`).

Importing this package imports no image library: a decoder imports its own when it is made.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

from wallclock.errors import Unavailable, check_name, image_errors
from wallclock.stages.pixels import Pixels

#: Bytes of a file to uint8 (h, w, 3); raises `ImageError` for damage.
Decode: TypeAlias = Callable[[bytes], Pixels]
#: The same for several files at once; in place of a damaged one, its `ImageError`.
DecodeMany: TypeAlias = Callable[[Sequence[bytes]], list[Any]]


@dataclass
class Scaling:
    """Decode to the smallest of 1/8, 1/4, 1/2 and 1 with both sides >= `margin` * `target` px.

    `used`: the shares of the next image's width and height that are used; of these sides it is
    then. `size`: its width and height, where its header was parsed before; a decoder may then leave
    that out. A decoder belongs to one thread, which sets them before each call.
    """

    target: int
    margin: float
    used: tuple[float, float] = (1.0, 1.0)
    size: tuple[int, int] | None = None

    def denominator(self, width: int, height: int) -> int:
        """8, 4, 2 or 1, for an image of this size in the file."""
        least = max(self.margin, 1.0) * self.target
        shortest = min(round(width * self.used[0]), round(height * self.used[1]))
        for n in (8, 4, 2):
            if -(-shortest // n) >= least:
                return n
        return 1


@dataclass(frozen=True)
class Decoder:
    """A JPEG decoder. Each is defined in a module that has its name.

    `name`: of `recipe.decoder`; `label`: in figures and prose. `libraries`: the distributions that
    it runs, pinned by requirements.lock; `codec`: the codec's entry of `provenance.versions()`,
    `libraries[0]` if empty. `make` is called as `decode.make` describes; it imports the library and
    raises `Unavailable` where that is not installed. `scales`: whether it supports
    `dct_scale=auto`. `device`: the comparison of decoders takes those of the CPU. `optional`: its
    libraries are not in requirements.lock.
    """

    name: str
    label: str
    libraries: tuple[str, ...]
    make: Callable[[Scaling | None, bool], Decode]
    scales: bool = False
    codec: str = ""
    device: str = "cpu"
    optional: bool = False
    #: For a library that is faster with several files in one call.
    make_many: Callable[[], DecodeMany] | None = None


#: The modules of this package that define a `DECODER`, in the order of tables
#: and figures. They import the names above from it.
_MODULES = ("pil", "opencv", "turbojpeg", "simplejpeg", "imagecodecs", "kornia_rs", "nvjpeg")

DECODERS: dict[str, Decoder] = {
    name: import_module(f"{__name__}.{name}").DECODER for name in _MODULES
}
NAMES = tuple(DECODERS)
#: The decoders that are compared with each other.
CPU_DECODERS = tuple(name for name, decoder in DECODERS.items() if decoder.device == "cpu")

#: Decoder → the entry of `provenance.versions()` for the codec it runs.
LIBRARY_OF = {name: decoder.codec or decoder.libraries[0] for name, decoder in DECODERS.items()}


def make(
    name: str, scaling: Scaling | None = None, *, reuse: bool = False, resizer: str = ""
) -> Decode:
    """Return the decoder called `name`: bytes of a 1- or 3-component JPEG → uint8 (h, w, 3).

    `scaling`: how far below its full size an image may be decoded; None: not at all. `reuse`:
    decode into a buffer of the decoder's own where the library can; pixels are then valid until the
    next call, and the decoder belongs to one thread. `resizer`: what takes the pixels next;
    Pillow's resize takes Pillow's image, without two copies through an array. Raises `UserError`
    for an unknown name, `Unavailable` without the library or where it cannot scale.
    """
    decoder = DECODERS[check_name(name, NAMES, "decoder")]
    if scaling is not None and not decoder.scales:
        able = ", ".join(name for name in NAMES if DECODERS[name].scales)
        raise Unavailable(f"decoder={name} decodes to full size only; dct_scale=auto is for {able}")
    if name == resizer == "pil":
        from wallclock.stages.decode.pil import make_image

        return image_errors("decode", decoder.label, make_image(scaling))
    return image_errors("decode", decoder.label, decoder.make(scaling, reuse))


def name_of(decode: Decode) -> str:
    """The name of the decoder that made `decode`, read back from the function itself."""
    return decode.__module__.rpartition(".")[2]


def decode_other(data: bytes) -> Pixels:
    """Decode PNG, WebP, GIF or CMYK JPEG bytes to uint8 (h, w, 3); raises `ImageError`."""
    return make("pil")(data)
