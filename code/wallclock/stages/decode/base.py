"""What a decoder states about itself, and how far below full size it may decode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from wallclock.stages.pixels import Pixels

#: Bytes of a file to uint8 (h, w, 3); raises `ImageError` for damage.
Decode: TypeAlias = Callable[[bytes], Pixels]


@dataclass(frozen=True)
class Scaling:
    """Decode to the smallest of 1/8, 1/4, 1/2 and 1 with both sides >= `margin` * `target` px."""

    target: int
    margin: float

    def denominator(self, width: int, height: int) -> int:
        """8, 4, 2 or 1, for an image of this size in the file."""
        least = max(self.margin, 1.0) * self.target
        return next(
            (n for n in (8, 4, 2) if -(-width // n) >= least and -(-height // n) >= least), 1
        )


@dataclass(frozen=True)
class Decoder:
    """A JPEG decoder. Each is defined in a module that has its name.

    Attributes:
        name: its value of `recipe.decoder`.
        label: its name in figures and prose.
        libraries: the distributions that it runs; requirements.lock pins them.
        make: (scaling, reuse) → `Decode`, as `decode.make` describes them. Imports the library;
            raises `Unavailable` where it is not installed.
        scales: whether it supports `dct_scale=auto`.
        codec: the entry of `provenance.versions()` for the codec it runs; empty: `libraries[0]`.
        device: where it decodes; the comparison of decoders takes those of the CPU.
    """

    name: str
    label: str
    libraries: tuple[str, ...]
    make: Callable[[Scaling | None, bool], Decode]
    scales: bool = False
    codec: str = ""
    device: str = "cpu"
