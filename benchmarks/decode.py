"""What decoding and resizing one image takes: data/benchmarks/decode.csv, with its provenance.

Generated originals and 256 px thumbnails lie in memory; one thread decodes or resizes each of them.
`scale`: libjpeg-turbo to each size that it can decode to. `binding`: simplejpeg, with a new array
and with a buffer that is used again, and PyTurboJPEG, all to full size. `resize`: Pillow, torch and
OpenCV from full size to 224 px, with the PSNR against Pillow. The choices run in turn, round by
round; a row has the milliseconds per image of the median round, the fastest and the slowest.

    python -m benchmarks.decode [--rounds N]
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import turbojpeg

from benchmarks._common import PX, save, spread
from harness import native, provenance
from harness.corpora import render
from harness.measures import psnr_db
from harness.processes import gc_disabled
from wallclock.machine import set_threads
from wallclock.recipe import Recipe
from wallclock.stages import decode, resize
from wallclock.stages.pixels import PixelArray

#: Image set → how many of its images, and the sizes that they are decoded to, in eighths.
_SETS = {"original": (8, (1, 2, 3, 4, 5, 6, 8)), "small_256": (64, (8,))}

_Run = Callable[[Any], PixelArray]


class Choice(NamedTuple):
    """One way to do a part of the work. `exact`: the one that its pixels are compared with."""

    part: str
    images: str
    name: str
    run: _Run
    sources: Sequence[Any]
    exact: _Run | None = None


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    set_threads(Recipe("decode", torch_threads=1), uses_torch=True)
    choices = [choice for images in _SETS for choice in choices_of(images)]
    save("decode", measure(choices, rounds))


def choices_of(images: str) -> Iterator[Choice]:
    """The choices for an image set, which share its files."""
    n_images, sizes = _SETS[images]
    files = [render.render(0, images, index) for index in range(n_images)]
    library = turbojpeg.TurboJPEG(native.find_libturbojpeg())
    for eighths in sizes:
        yield Choice("scale", images, f"{eighths}/8", _scaled(library, eighths), files)
    full = decode.make("simplejpeg")
    reused = decode.make("simplejpeg", reuse=True)
    yield Choice("binding", images, "simplejpeg", full, files)
    yield Choice("binding", images, "simplejpeg, a buffer used again", reused, files)
    yield Choice("binding", images, "PyTurboJPEG", decode.make("turbojpeg"), files)
    decoded = [full(data) for data in files]
    pillow = resize.make("pil", "bilinear", PX).resize
    yield Choice("resize", images, "pil bilinear", pillow, decoded)
    for name in ("torch bilinear", "opencv area", "opencv linear"):
        resizer, interpolation = name.split()
        run = resize.make(resizer, interpolation, PX).resize
        yield Choice("resize", images, name, run, decoded, pillow)


def _scaled(library: Any, eighths: int) -> _Run:
    divisor = next(n for n in (8, 4, 2, 1) if eighths % n == 0)
    factor = None if eighths == 8 else (eighths // divisor, 8 // divisor)
    return lambda data: library.decode(data, turbojpeg.TJPF_RGB, factor)


def measure(choices: Sequence[Choice], rounds: int) -> list[dict[str, object]]:
    """A row for each choice."""
    durations: list[list[float]] = [[] for _ in choices]
    with gc_disabled():
        # The first round warms up.
        for number in range(rounds + 1):
            for choice, times in zip(choices, durations, strict=True):
                began = perf_counter_ns()
                for source in choice.sources:
                    choice.run(source)
                if number:
                    times.append((perf_counter_ns() - began) / 1e6 / len(choice.sources))
    cpu = provenance.machine()["cpu"]
    return [
        {
            "part": choice.part,
            "images": choice.images,
            "n_images": len(choice.sources),
            "choice": choice.name,
            "rounds": rounds,
            **spread("ms", times),
            "psnr_db": _psnr_db(choice),
            "cpu": cpu,
            "origin": "measured",
        }
        for choice, times in zip(choices, durations, strict=True)
    ]


def _psnr_db(choice: Choice) -> float | None:
    """Of the median image."""
    if choice.exact is None:
        return None
    pairs = ((choice.run(source), choice.exact(source)) for source in choice.sources)
    return float(np.median([psnr_db(*pair) for pair in pairs]))


if __name__ == "__main__":
    main()
