"""What `recipe.progressive` brings, by scan script: data/progressive.csv, with its provenance.

Every progressive JPEG is decoded at the scale of `recipe=fast`: all of it, and cut off as each mode
does. A row is a scan script at one scale: how many files, of how many something was cut, the share
of their bytes that is kept, milliseconds of a decode (the cut included; alternately, the median
round of each file, then the median file), and of those cut the PSNR after the resize against the
whole file's image. As `recipe=fast` is judged: on how many files the result is more than 1 dB below
full decode and INTER_AREA, on how many below the paper's recipe, each against Pillow's antialiased
resize. `gate`: at least 40 dB for 95 % of the files cut, and none below the paper's recipe.

A script is written as its scans: components, band of coefficients, bits left out (`Y1-63/1`). Those
of fewer than `--least` files at a scale are counted together.

    python -m benchmarks.progressive [--folder DIR] [--n N] [--rounds N] [--least N]
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

from benchmarks.fast import PX, SEED, TIMED, save
from harness.corpora import render
from harness.measures import psnr_db
from wallclock import jpeg
from wallclock.check import read_header
from wallclock.clock import gc_disabled
from wallclock.errors import ImageError
from wallclock.machine import set_threads
from wallclock.recipe import Limits, Recipe
from wallclock.stages import decode, resize
from wallclock.stages.decode import scans
from wallclock.stages.decode.decoder import Decode, Scaling
from wallclock.stages.pixels import PixelArray
from wallclock.summary import median, quantile

MODES = ("exact", "early")
LEAST_DB = 40.0
#: What libjpeg's jpeg_simple_progression writes, with Cr before Cb.
LIBJPEG = "YCbCr0/1 Y1-5/2 Cr1-63/1 Cb1-63/1 Y6-63/2 Y1-63/1 YCbCr0 Cr1-63 Cb1-63 Y1-63"


class _Sample(NamedTuple):
    """One file in one mode. `above_*`: dB over another method on the same file."""

    images: str
    script: str
    scale: str
    mode: str
    kept: float
    ms_full: float
    ms: float
    psnr_db: float
    above_area: float
    above_paper: float


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="JPEGs of your own, in addition")
    parser.add_argument("--n", type=int, default=100, help="synthetic originals")
    parser.add_argument("--rounds", type=int, default=15, help="how often each file is decoded")
    parser.add_argument(
        "--least", type=int, default=4, help="files of a script with rows of its own"
    )
    choices = parser.parse_args()
    set_threads(Recipe("progressive", torch_threads=1), uses_torch=True)
    synthetic = (render.render(SEED, "original", index, 1.0) for index in range(choices.n))
    samples = list(_samples("synthetic originals", synthetic, choices.rounds))
    if choices.folder:
        files = (path.read_bytes() for path in sorted(choices.folder.rglob("*.jp*g")))
        samples += _samples("folder", files, choices.rounds)
    save("progressive", list(_rows(samples, choices.least)), (*TIMED, "wallclock.jpeg"))


def _samples(images: str, files: Iterable[bytes], rounds: int) -> Iterator[_Sample]:
    scaling = Scaling(PX, Recipe.dct_margin)
    decode_jpeg = decode.make("simplejpeg", scales=True)
    ours, pillow = (resize.make(name, "bilinear", PX).resize for name in ("torch", "pil"))
    area, paper = (resize.make("opencv", name, PX).resize for name in ("area", "linear"))
    for data in files:
        try:
            header = read_header(data, Limits())
            full = decode_jpeg(data)
        except ImageError:
            continue
        if header.process != "progressive":
            continue
        size = (header.height, header.width)
        truth = pillow(full)
        scale = scaling.denominator(header.width, header.height)
        ways = [partial(decode_jpeg, data, scale)]
        ways += [partial(_decode_less, decode_jpeg, data, scale, mode) for mode in MODES]
        (decoded, *reduced), (ms_full, *ms) = _timed(ways, rounds)
        uncut = ours(decoded, size)
        others = [psnr_db(resize_picture(full), truth) for resize_picture in (area, paper)]
        for mode, pixels, taken in zip(MODES, reduced, ms, strict=True):
            image = ours(pixels, size)
            above = [psnr_db(image, truth) - other for other in others]
            kept = len(scans.cut(data, scale, mode)) / len(data)
            loss = psnr_db(image, uncut)
            yield _Sample(
                images, _script(data), f"1/{scale}", mode, kept, ms_full, taken, loss, *above
            )


def _decode_less(decode_jpeg: Decode, data: bytes, scale: int, mode: str) -> PixelArray:
    return decode_jpeg(scans.cut(data, scale, mode), scale)


def _timed(
    ways: Sequence[Callable[[], PixelArray]], rounds: int
) -> tuple[list[PixelArray], list[float]]:
    """What each way returns, and its median round's milliseconds."""
    results = [way() for way in ways]
    durations: list[list[float]] = [[] for _ in ways]
    with gc_disabled():
        for _ in range(rounds):
            for way, times in zip(ways, durations, strict=True):
                began = perf_counter_ns()
                way()
                times.append((perf_counter_ns() - began) / 1e6)
    return results, [median(times) for times in durations]


def _script(data: bytes) -> str:
    names: dict[int, str] = {}
    script = []
    for marker, _, start, end in jpeg.segments(data):
        if marker == jpeg.SOF_PROGRESSIVE:
            names = dict(zip(data[start + 8 : end : 3], ("Y", "Cb", "Cr"), strict=False))
        elif marker == jpeg.SOS:
            first, last, bits = data[end - 3 : end]
            band = f"{first}-{last}" if last else "0"
            left = f"/{bits & 15}" if bits & 15 else ""
            script.append("".join(names[i] for i in data[start + 3 : end - 3 : 2]) + band + left)
    named = " ".join(script)
    return "libjpeg" if named == LIBJPEG else named


def _rows(samples: Sequence[_Sample], least: int) -> Iterator[dict[str, object]]:
    """A row for each script, scale and mode, the most frequent first; the others; then all."""
    for images in dict.fromkeys(sample.images for sample in samples):
        of_set = [sample for sample in samples if sample.images == images]
        counts = Counter((sample.script, sample.scale) for sample in of_set)
        groups: dict[tuple[str, str], list[_Sample]] = {}
        for key, n in counts.most_common():
            members = [s for s in of_set if (s.script, s.scale) == key]
            group = key if n >= least * len(MODES) else ("others", key[1])
            groups.setdefault(group, []).extend(members)
        groups["all", "all"] = of_set
        for (script, scale), members in groups.items():
            for mode in MODES:
                row = _row([sample for sample in members if sample.mode == mode])
                yield {"images": images, "script": script, "scale": scale, **row}


def _row(samples: Sequence[_Sample]) -> dict[str, object]:
    decibels = [sample.psnr_db for sample in samples if sample.kept < 1]
    lowest = quantile(decibels, 0.05) if decibels else None
    below_paper = sum(sample.above_paper < 0 for sample in samples)
    passed = lowest is not None and lowest >= LEAST_DB and not below_paper
    return {
        "mode": samples[0].mode,
        "n_images": len(samples),
        "n_cut": len(decibels),
        "bytes_kept": median([sample.kept for sample in samples]),
        "ms_full": median([sample.ms_full for sample in samples]),
        "ms": median([sample.ms for sample in samples]),
        "speedup": median([sample.ms_full / sample.ms for sample in samples]),
        "psnr_db": median(decibels) if decibels else None,
        "psnr_db_p5": lowest,
        "psnr_db_min": min(decibels, default=None),
        "n_below_area_by_1_db": sum(sample.above_area < -1 for sample in samples),
        "n_below_paper": below_paper,
        "gate": "passed" if passed else "failed" if decibels else "nothing cut",
        "origin": "measured",
    }


if __name__ == "__main__":
    main()
