"""What `recipe=fast` chose between: decoding by scale and binding, shortcuts, resizers → data/fast-parts.csv

Every choice gets the same seeded pictures in memory, on one thread, one choice after the other, round by round;
a row is the median round's milliseconds a picture. Where a choice changes pixels, the PSNR against the one
that does not stands beside it.

    python -m benchmarks.fast_parts [--rounds N]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
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
from wallclock.summary import median, psnr_db
from wallclock.thread_counts import set_threads

PX = 224
COLUMNS = (
    "part",
    "images",
    "n_images",
    "choice",
    "rounds",
    "ms",
    "ms_min",
    "ms_max",
    "psnr_db",
    "cpu",
    "origin",
)
#: Stands for equal pixels.
_CEILING_DB = 99.0
_SETS = {"original": 8, "small_256": 64}
_EIGHTHS = {"original": (1, 2, 3, 4, 5, 6, 8), "small_256": (8,)}


@dataclass(frozen=True)
class _Choice:
    """One way to do a part of the work. `exact`: the choice whose pixels this one's are compared with."""

    part: str
    images: str
    name: str
    run: Callable[[Any], Pixels]
    sources: Sequence[Any]
    exact: Callable[[Any], Pixels] | None = None


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    set_threads(Recipe("parts", torch_threads=1), uses_torch=True)
    rows = _rows([choice for name in _SETS for choice in _choices(name)], rounds)
    publish("fast-parts", COLUMNS, rows)
    for row in rows:
        psnr = "" if row["psnr_db"] is None else f"  {row['psnr_db']:.1f} dB"
        print(f"{row['part']:<9} {row['images']:<10} {row['choice']:<34} {row['ms']:8.3f} ms{psnr}")


def _choices(name: str) -> list[_Choice]:
    files = [render.render(0, name, index, 0.0) for index in range(_SETS[name])]
    library = turbojpeg.TurboJPEG(native.find_libturbojpeg())
    full = decode.make("simplejpeg")
    pictures = [full(data) for data in files]
    found = [
        _Choice("scale", name, f"{eighths}/8", _scaled(library, eighths), files)
        for eighths in _EIGHTHS[name]
    ]
    found += [
        _Choice("binding", name, "simplejpeg", full, files),
        _Choice(
            "binding",
            name,
            "simplejpeg, a buffer used again",
            decode.make("simplejpeg", reuse=True),
            files,
        ),
        _Choice("binding", name, "PyTurboJPEG", decode.make("turbojpeg"), files),
    ]
    for n in (1,) if name == "small_256" else (1, 2, 4):
        exact = _shortcuts(n)
        found.append(_Choice("shortcut", name, f"1/{n}, none", exact, files))
        found.append(
            _Choice("shortcut", name, f"1/{n}, fast DCT", _shortcuts(n, fastdct=True), files, exact)
        )
        quick = _shortcuts(n, fastdct=True, fastupsample=True)
        found.append(
            _Choice("shortcut", name, f"1/{n}, fast DCT and upsampling", quick, files, exact)
        )
    pillow = resize.make("pil", "bilinear", PX).resize
    found.append(_Choice("resize", name, "pil bilinear", pillow, pictures))
    for library_name, interpolation in (
        ("torch", "bilinear"),
        ("opencv", "area"),
        ("opencv", "linear"),
    ):
        run = resize.make(library_name, interpolation, PX).resize
        found.append(
            _Choice("resize", name, f"{library_name} {interpolation}", run, pictures, pillow)
        )
    return found


def _scaled(library: Any, eighths: int) -> Callable[[bytes], Pixels]:
    divisor = next(n for n in (8, 4, 2, 1) if eighths % n == 0)
    factor = (eighths // divisor, 8 // divisor)
    return lambda data: library.decode(
        data, turbojpeg.TJPF_RGB, None if factor == (1, 1) else factor
    )


def _shortcuts(n: int, **flags: bool) -> Callable[[bytes], Pixels]:
    def run(data: bytes) -> Pixels:
        height, width = simplejpeg.decode_jpeg_header(data)[:2]
        least = {} if n == 1 else {"min_height": -(-height // n), "min_width": -(-width // n)}
        pixels: Pixels = simplejpeg.decode_jpeg(data, "RGB", **flags, **least)
        return pixels

    return run


def _rows(choices: Sequence[_Choice], rounds: int) -> list[dict[str, object]]:
    took: list[list[float]] = [[] for _ in choices]
    with gc_disabled():
        # The first round warms up.
        for number in range(rounds + 1):
            for choice, times in zip(choices, took, strict=True):
                began = perf_counter_ns()
                for source in choice.sources:
                    choice.run(source)
                if number:
                    times.append((perf_counter_ns() - began) / 1e6 / len(choice.sources))
    cpu = provenance.machine()["cpu"]
    return [
        {
            **{
                "part": choice.part,
                "images": choice.images,
                "n_images": len(choice.sources),
                "choice": choice.name,
            },
            **{"rounds": rounds, "ms": median(times), "ms_min": min(times), "ms_max": max(times)},
            **{"psnr_db": _apart(choice), "cpu": cpu, "origin": "measured"},
        }
        for choice, times in zip(choices, took, strict=True)
    ]


def _apart(choice: _Choice) -> float | None:
    if choice.exact is None:
        return None
    found = [
        min(psnr_db(choice.run(source), choice.exact(source)), _CEILING_DB)
        for source in choice.sources
    ]
    return float(np.median(found))


if __name__ == "__main__":
    main()
