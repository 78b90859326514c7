"""What a decoder is. See the package for the policy that all of them follow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from wallclock.stages.pixels import PixelArray

#: What pixels may be, as Pillow calls it, and their channels.
MODES: Mapping[str, int] = {"RGB": 3, "L": 1, "RGBA": 4}

#: Bytes of a file to uint8 (h, w, c) at 1/`scale` of its size; raises `ImageError` for damage:
#: `decode(data, scale=1, size=None)`. `scale`: 1, 2, 4 or 8; sides are rounded up. `size`: width
#: and height of the file, where its header was parsed before; a decoder may then leave that out.
Decode: TypeAlias = Callable[..., PixelArray]


@dataclass(frozen=True)
class Decoder:
    """A JPEG decoder. Each is defined in a module that has its name.

    `name`: of `recipe.decoder`; `label`: in figures and prose. `libraries`: the distributions that
    it runs; `codec`: the codec's entry of the record's library versions, `libraries[0]` if empty.
    `make` takes whether to decode into a buffer of the decoder's own, and the mode where that is
    not RGB; it raises `Unavailable`. `modes`: those of `MODES` that it decodes to. `scales`:
    whether it supports `dct_scale=auto`. `strict`: whether each of libjpeg-turbo's warnings about a
    plain JPEG is an error. `optional`: its libraries are not in requirements/dev.lock.
    """

    name: str
    label: str
    libraries: tuple[str, ...]
    make: Callable[..., Decode]
    scales: bool = False
    strict: bool = False
    codec: str = ""
    optional: bool = False
    modes: tuple[str, ...] = ("RGB",)
