"""The loops of these examples, before and after: python -m examples.measure [--rounds N].

On generated JPEGs in the page cache. `before_workers` and `after_workers` are processes or threads
that prepare images; a loop in the main thread has one. Both sides have all cores, or where the row
says so the loop before has one, as its users run it. A loop counts once it has given a batch a
core: the start of processes is not timed, and each has as many batches left as the others.

In a round every pair of loops runs once, in turns the one or the other first. A rate is the median
of the rounds, with the least and the greatest; the speedup is that of the rates of the same round.
The pixels are compared where both loops compute the same. Writes examples.csv, its provenance and
every rate (examples.samples.json) into data/benchmarks/.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from transformers import ViTImageProcessor

from benchmarks._common import save
from examples import replace_dataloader, train, transformers_processor
from examples.replace_dataloader import MEAN, STD
from harness import provenance
from harness.corpora import manifest, synthetic
from harness.measures import median, psnr_db, quantile
from harness.spec import CorpusSpec
from wallclock.machine import usable_cores

#: Image set → generated files, and how often each is taken in one round, for each core.
_SETS = {"small_256": (1000, 1), "original": (48, 6)}
#: Images whose pixels are compared.
_COMPARED = 48

Loop = Callable[[Sequence[str]], Iterator[torch.Tensor]]


@dataclass(frozen=True)
class Pair:
    """A loop before and the one after, and what the table says of them."""

    example: str
    before: str
    loops: tuple[Loop, Loop]
    workers: tuple[int, int]
    same_pixels: bool = True


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    # Every core loads: a second thread for the normalization would only wait for one.
    torch.set_num_threads(1)
    rounds, cores = parser.parse_args().rounds, usable_cores()
    rows = []
    samples: dict[str, list[float]] = {}
    for images, (n, times) in _SETS.items():
        paths = _paths(images, n, provenance.ROOT / "data" / "corpora") * times * cores
        for pair in pairs(cores):
            rates = measure(pair.loops, paths, rounds)
            decibels = _decibels(pair, paths[:_COMPARED])
            rows.append(make_row(pair, images, len(paths), rates, decibels))
            for side, taken in rates.items():
                samples[f"{images}, {pair.example}, {side}, img/s"] = taken
    save("examples", rows, samples)


def pairs(cores: int) -> list[Pair]:
    """The loops that are compared."""
    processor = ViTImageProcessor(image_mean=MEAN.tolist(), image_std=STD.tolist())
    # Read back: without torchvision, transformers takes another backend than it is asked for.
    backend = f"ViTImageProcessor, backend {processor.backend}"
    replaced = partial(replace_dataloader.after, workers=cores)
    in_turn = partial(transformers_processor.before, processor=processor)
    in_workers = partial(transformers_processor.before_in_workers, processor=processor)
    processed = partial(transformers_processor.after, processor=processor)
    return [
        Pair(
            "replace_dataloader",
            "DataLoader, Pillow",
            (partial(replace_dataloader.before, workers=cores), replaced),
            (cores, cores),
        ),
        Pair(
            "replace_dataloader_draft",
            "DataLoader, Pillow's draft",
            (partial(replace_dataloader.before, workers=cores, draft=True), replaced),
            (cores, cores),
        ),
        Pair(
            "transformers_processor",
            f"{backend}, in the main thread",
            (in_turn, partial(processed, workers=cores)),
            (1, cores),
        ),
        Pair(
            "transformers_processor_one_thread",
            f"{backend}, in the main thread",
            (in_turn, partial(processed, workers=1)),
            (1, 1),
        ),
        Pair(
            "transformers_processor_in_workers",
            f"{backend}, in a DataLoader",
            (partial(in_workers, workers=cores), partial(processed, workers=cores)),
            (cores, cores),
        ),
        Pair(
            "train",
            "DataLoader, Pillow, augmented",
            (partial(train.before, workers=cores), partial(train.after, workers=cores)),
            (cores, cores),
            same_pixels=False,
        ),
    ]


def _paths(images: str, n: int, cache: Path) -> list[str]:
    spec = CorpusSpec("synthetic")
    made = manifest.load(Path(synthetic.prepare(spec, images, n, cache, lambda *_: None).manifest))
    return [f"{made.root}/{item.path}" for item in made.valid[:n]]


def measure(loops: tuple[Loop, Loop], paths: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Images a second of both loops in each round."""
    before, after = loops
    rates: dict[str, list[float]] = {"before": [], "after": []}
    for number in range(rounds):
        turn = [("before", before), ("after", after)]
        for side, loop in turn if number % 2 else reversed(turn):
            rates[side].append(_rate(loop(paths)))
    return rates


def _rate(loop: Iterator[torch.Tensor]) -> float:
    for _ in range(usable_cores()):
        next(loop)
    began = perf_counter()
    count = sum(len(batch) for batch in loop)
    return count / (perf_counter() - began)


def make_row(
    pair: Pair,
    images: str,
    n_images: int,
    rates: Mapping[str, Sequence[float]],
    decibels: Sequence[float],
) -> dict[str, object]:
    """One row of the table; without PSNR where nothing was compared."""
    row: dict[str, object] = {
        "example": pair.example,
        "images": images,
        "n_images": n_images,
        "rounds": len(rates["before"]),
        "before": pair.before,
        "before_workers": pair.workers[0],
        "after_workers": pair.workers[1],
    }
    for side in ("before", "after"):
        row |= _spread(f"{side}_img_per_s", rates[side])
    ratios = [new / old for old, new in zip(rates["before"], rates["after"], strict=True)]
    return {
        **row,
        **_spread("speedup", ratios),
        "psnr_p5_db": quantile(decibels, 0.05) if decibels else None,
        "cpu": provenance.machine()["cpu"],
        "origin": "measured",
    }


def _spread(name: str, values: Sequence[float]) -> dict[str, object]:
    """Median, least and greatest."""
    return {name: median(values), f"{name}_min": min(values), f"{name}_max": max(values)}


def _decibels(pair: Pair, paths: Sequence[str]) -> list[float]:
    """PSNR of each image of both loops; none where they draw their own crops."""
    if not pair.same_pixels:
        return []
    theirs, ours = (
        _levels(torch.cat([batch.clone() for batch in loop(paths)])) for loop in pair.loops
    )
    return [psnr_db(new, old) for old, new in zip(theirs, ours, strict=True)]


def _levels(batch: torch.Tensor) -> Any:
    pixels = (batch.permute(0, 2, 3, 1) * STD + MEAN) * 255
    return pixels.round().clamp(0, 255).to(torch.uint8).numpy()


if __name__ == "__main__":
    main()
