"""A check of speed that holds on any machine: `make regression`, in three minutes.

Rates differ between machines, ratios within one run much less. In each round every part below takes
one pass over generated files in the page cache, forwards and backwards in turn. A ratio is of two
parts in the same round, the median over the rounds. It must lie between the lowest and the highest
that earlier runs recorded in data/regression.csv, give or take `MARGIN`. The exit status is 1, with
a line per ratio outside, or 2 if nothing is recorded.

`--record` adds this run to the file: do so five times on a quiet machine, and again after a change
of a ratio that is meant. A run that other programs disturbed is not recorded.

    python -m benchmarks.regression [--rounds N] [--seconds S] [--record]
"""

import argparse
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch.utils.data import DataLoader

import wallclock
from benchmarks._common import PX, in_turn, spread
from benchmarks.loader import Decoded, by_hand, by_pillow
from harness import provenance
from harness.corpora import manifest, readers, synthetic
from harness.measures import median
from harness.protocols import protocol
from harness.spec import CorpusSpec
from harness.table import Row, read_table, write_table
from wallclock.machine import usable_cores

PATH = provenance.ROOT / "data" / "regression.csv"
COLUMNS = (
    "ratio",
    "value",
    "value_min",
    "value_max",
    "rounds",
    "cpu",
    "cores",
    "commit",
    "measured",
)
#: How far beyond the recorded runs a ratio may lie, as a factor: twice as far as runs on one quiet
#: machine differ.
MARGIN = 1.1
#: Cores that other programs may keep busy in a run that is recorded.
_QUIET = 0.1
_ORIGINALS, _THUMBNAILS = "original", "small_256"
#: Image set → generated files, and images of a batch.
_FILES = {_ORIGINALS: 48, _THUMBNAILS: 512}
_BATCH = {_ORIGINALS: 8, _THUMBNAILS: 32}
#: Batches of a pass at least, beside one per core, which is not timed: what is loaded ahead when
#: the clock starts is a small share of it.
_LEAST_BATCHES = 12
#: As the processor of DINOv2 has it.
_CROP = "shortest:256,crop:224x224,bicubic,rotate"
_PARTS = 16

Paths = Sequence[str]
#: Takes a pass over the images of a set and returns images per second.
Part = Callable[[Paths], float]


@dataclass(frozen=True)
class Ratio:
    """The rate of one part over that of another."""

    name: str
    over: str
    above: str
    below: str


#: What is compared. Overheads show on thumbnails, decoding and resizing on originals.
RATIOS = (
    Ratio("loader_over_pillow", "a DataLoader with Pillow, originals", "ours", "pillow"),
    Ratio("loader_over_same", "a DataLoader with the same libraries, 256 px", "ours_256", "same"),
    Ratio("loader_over_bare", "bare simplejpeg and resize, pinned, 256 px", "ours_256", "bare"),
    Ratio("embed_over_loader", "the loader alone, 256 px", "embed", "ours_256"),
    Ratio("parts_over_one", "a job of one part, 256 px", "parts", "embed"),
    Ratio("crop_over_squash", "a squash, originals", "crop", "ours"),
)


@dataclass(frozen=True)
class Interval:
    """What a ratio may be, and how many recorded runs say so."""

    low: float
    high: float
    runs: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, compare, and record on request; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.2, help="of a pass")
    parser.add_argument("--record", action="store_true", help=f"add this run to {PATH.name}")
    options = parser.parse_args(arguments)
    began = perf_counter()
    disturbed: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as work, protocol.competing(disturbed):
        rates = measure(Path(work), options.rounds, options.seconds)
    ratios = ratios_of(rates)
    busy = disturbed["other_cores"]
    recorded = read_table(PATH) if PATH.is_file() else []
    for line in describe(ratios, intervals(recorded)):
        print(line)
    print(f"{perf_counter() - began:.0f} s; other programs kept {busy:.2f} cores busy")
    if options.record:
        if busy > _QUIET:
            print("not recorded: a run counts on a quiet machine", file=sys.stderr)
            return 2
        write_table(PATH, COLUMNS, [*recorded, *rows_of(ratios)])
        return 0
    return judge(ratios, intervals(recorded))


def measure(work: Path, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Images per second of each part in each round, after a short pass of each."""
    torch.set_num_threads(1)
    paths = {images: _paths(images) for images in _FILES}
    repeated: dict[str, list[str]] = {}
    parts = _parts(work, seconds)
    for name, (images, take) in parts.items():
        n, least = len(paths[images]), _BATCH[images] * (_LEAST_BATCHES + usable_cores())
        rate = take(paths[images] * -(-least // n))
        repeated[name] = paths[images] * -(-max(least, round(seconds * rate)) // n)
    return in_turn(lambda name: parts[name][1](repeated[name]), parts, rounds)


def _paths(images: str) -> list[str]:
    spec, cache = CorpusSpec("synthetic"), provenance.ROOT / "data" / "corpora"
    made = synthetic.prepare(spec, images, _FILES[images], cache, lambda *_: None)
    corpus = manifest.load(Path(made.manifest))
    readers.warm(readers.stored_files(corpus))
    return [str(corpus.root / item.path) for item in corpus.valid]


def _parts(work: Path, seconds: float) -> dict[str, tuple[str, Part]]:
    """Part → its image set, and what takes a pass over it."""
    large, small = _BATCH[_ORIGINALS], _BATCH[_THUMBNAILS]
    return {
        "ours": (_ORIGINALS, partial(_opened, large)),
        "pillow": (_ORIGINALS, partial(_dataloader, by_pillow, large)),
        "crop": (_ORIGINALS, partial(_opened, large, preprocess=_CROP)),
        "ours_256": (_THUMBNAILS, partial(_opened, small)),
        "same": (_THUMBNAILS, partial(_dataloader, by_hand, small)),
        "bare": (_THUMBNAILS, partial(_bare, seconds)),
        "embed": (_THUMBNAILS, partial(_embed, work, 1)),
        "parts": (_THUMBNAILS, partial(_embed, work, _PARTS)),
    }


def _opened(batch: int, paths: Paths, preprocess: str = "squash") -> float:
    with wallclock.open_images(paths, PX, batch, preprocess=preprocess) as batches:
        return _rate(len(loaded.ids) for loaded in batches)


def _dataloader(load: Callable[[str], Any], batch: int, paths: Paths) -> float:
    batches = DataLoader(Decoded(paths, load), batch, num_workers=usable_cores())
    return _rate(len(loaded) for loaded in batches)


def _rate(sizes: Iterator[int]) -> float:
    """Images per second by the sizes of batches, after one batch per core."""
    for _ in range(usable_cores()):
        next(sizes)
    began = perf_counter()
    n = sum(sizes)
    return n / (perf_counter() - began)


def _bare(seconds: float, paths: Paths) -> float:
    """Read, decode and resize in a pinned process per core: no batches, no order, no checks."""
    cores = sorted(os.sched_getaffinity(0))[: usable_cores()]
    tasks = []
    for number, core in enumerate(cores):
        first = len(paths) * number // len(cores)
        tasks.append(partial(_pinned, core, [*paths[first:], *paths[:first]], seconds))
    return sum(n / ns * 1e9 for n, ns in protocol.in_processes(tasks))


def _pinned(core: int, paths: Paths, seconds: float) -> Callable[[], tuple[int, int]]:
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)  # a fork has none of OpenMP's threads
    files = itertools.cycle(paths)
    by_hand(next(files))

    def step() -> int:
        by_hand(next(files))
        return 1

    return partial(protocol.repeat_for, seconds, step)


def _embed(work: Path, parts: int, paths: Paths) -> float:
    """A job's loop over batches, its commits included, without its start."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        source, out = Path(folder, "list.csv"), Path(folder, "vectors")
        lines = "".join(f"{number},{path}\n" for number, path in enumerate(paths))
        source.write_text(f"id,path\n{lines}", encoding="utf-8")
        settings: dict[str, Any] = {"model": "null", "device": "cpu", "deduplicate": False}
        settings |= {"processes": 1, "shard": -(-len(paths) // parts)}
        tally = wallclock.embed(source, out, **settings).tally
    return tally.images / tally.wall_s


def ratios_of(rates: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Each ratio in each round."""
    return {
        ratio.name: [
            above / below
            for above, below in zip(rates[ratio.above], rates[ratio.below], strict=True)
        ]
        for ratio in RATIOS
    }


def intervals(recorded: Iterable[Row]) -> dict[str, Interval]:
    """Ratio → what it may be, from the rows of data/regression.csv."""
    values: dict[str, list[float]] = {}
    for row in recorded:
        values.setdefault(row["ratio"], []).append(row["value"])
    return {
        name: Interval(min(runs) / MARGIN, max(runs) * MARGIN, len(runs))
        for name, runs in values.items()
    }


def rows_of(ratios: Mapping[str, Sequence[float]]) -> list[dict[str, object]]:
    """This run's rows of data/regression.csv."""
    machine, git = provenance.machine(), provenance.git_state()
    return [
        {
            "ratio": name,
            **spread("value", values),
            "rounds": len(values),
            "cpu": machine["cpu"],
            "cores": machine["cores"],
            "commit": git.get("commit", "") + (" with changes" if git.get("modified") else ""),
            "measured": provenance.utc(),
        }
        for name, values in ratios.items()
    ]


def describe(
    ratios: Mapping[str, Sequence[float]], allowed: Mapping[str, Interval]
) -> Iterable[str]:
    """Print a line per ratio: its median, its range over the rounds, what it may be."""
    for ratio in RATIOS:
        values = ratios[ratio.name]
        interval = allowed.get(ratio.name)
        may_be = f"{interval.low:.3f} to {interval.high:.3f}" if interval else "not recorded"
        spread = f"{min(values):.3f} to {max(values):.3f}"
        yield f"{ratio.name:18} {median(values):6.3f}  ({spread}; {may_be})  over {ratio.over}"


def judge(ratios: Mapping[str, Sequence[float]], allowed: Mapping[str, Interval]) -> int:
    """The exit status; prints a line to stderr for each ratio outside or not recorded."""
    status = 0
    for name, values in ratios.items():
        value, interval = median(values), allowed.get(name)
        if interval is None:
            print(f"regression: {name} is not recorded: run it with --record", file=sys.stderr)
            status = status or 2
        elif not interval.low <= value <= interval.high:
            may_be = f"{interval.low:.3f} to {interval.high:.3f}, by {interval.runs} runs"
            print(f"regression: {name} is {value:.3f}, outside {may_be}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
