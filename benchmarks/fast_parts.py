"""What `recipe=fast` chose between: scales, bindings, shortcuts, resizers → data/fast-parts.csv

Every choice gets the same seeded images in memory, on one thread, alternately, round by round; a
row is the median round's milliseconds an image. Where a choice changes pixels, the row has the PSNR
against the choice that does not.

    python -m benchmarks.fast_parts [--rounds N]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np
import simplejpeg
import turbojpeg

from benchmarks.results import publish
from wallclock import native, provenance
from wallclock.clock import gc_disabled
from wallclock.corpus import render
from wallclock.spec import Recipe
from wallclock.stages import decode, resize
from wallclock.stages.pixels import Pixels
from wallclock.summary import PSNR_CEILING_DB, median, psnr_db
from wallclock.thread_counts import set_threads

PX = 224
#: Image set → its images, the scales in eighths, the denominators at which shortcuts are timed.
_SETS = {"original": (8, (1, 2, 3, 4, 5, 6, 8), (1, 2, 4)), "small_256": (64, (8,), (1,))}

_Run = Callable[[Any], Pixels]


@dataclass(frozen=True)
class _Choice:
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
    set_threads(Recipe("parts", torch_threads=1), uses_torch=True)
    publish("fast-parts", _rows([choice for name in _SETS for choice in _choices(name)], rounds))


def _choices(images: str) -> Iterator[_Choice]:
    n_images, eighths_of, denominators = _SETS[images]
    files = [render.render(0, images, index, 0.0) for index in range(n_images)]
    library = turbojpeg.TurboJPEG(native.find_libturbojpeg())
    full, pillow = decode.make("simplejpeg"), resize.make("pil", "bilinear", PX).resize
    for eighths in eighths_of:
        yield _Choice("scale", images, f"{eighths}/8", _scaled(library, eighths), files)
    for name, run in (
        ("simplejpeg", full),
        ("simplejpeg, a buffer used again", decode.make("simplejpeg", reuse=True)),
        ("PyTurboJPEG", decode.make("turbojpeg")),
    ):
        yield _Choice("binding", images, name, run, files)
    for n in denominators:
        exact = _shortcut(n)
        yield _Choice("shortcut", images, f"1/{n}, none", exact, files)
        for name, run in (
            ("fast DCT", _shortcut(n, fastdct=True)),
            ("fast DCT and upsampling", _shortcut(n, fastdct=True, fastupsample=True)),
        ):
            yield _Choice("shortcut", images, f"1/{n}, {name}", run, files, exact)
    decoded = [full(data) for data in files]
    yield _Choice("resize", images, "pil bilinear", pillow, decoded)
    for name in ("torch bilinear", "opencv area", "opencv linear"):
        library_name, interpolation = name.split()
        resizer = resize.make(library_name, interpolation, PX)
        yield _Choice("resize", images, name, resizer.resize, decoded, pillow)


def _scaled(library: Any, eighths: int) -> _Run:
    divisor = next(n for n in (8, 4, 2, 1) if eighths % n == 0)
    factor = None if eighths == 8 else (eighths // divisor, 8 // divisor)
    return lambda data: library.decode(data, turbojpeg.TJPF_RGB, factor)


def _shortcut(n: int, **flags: bool) -> _Run:
    def run(data: bytes) -> Pixels:
        height, width = simplejpeg.decode_jpeg_header(data)[:2]
        least = {} if n == 1 else {"min_height": -(-height // n), "min_width": -(-width // n)}
        pixels: Pixels = simplejpeg.decode_jpeg(data, "RGB", **flags, **least)
        return pixels

    return run


def _rows(choices: Sequence[_Choice], rounds: int) -> list[dict[str, object]]:
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
            "ms": median(times),
            "ms_min": min(times),
            "ms_max": max(times),
            "psnr_db": _psnr(choice),
            "cpu": cpu,
            "origin": "measured",
        }
        for choice, times in zip(choices, durations, strict=True)
    ]


def _psnr(choice: _Choice) -> float | None:
    if choice.exact is None:
        return None
    pairs = ((choice.run(source), choice.exact(source)) for source in choice.sources)
    return float(np.median([min(psnr_db(*pair), PSNR_CEILING_DB) for pair in pairs]))


if __name__ == "__main__":
    main()
