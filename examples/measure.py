"""The loops of these examples, before and after: python -m examples.measure [--rounds N].

On generated JPEGs in the page cache, with every core. A loop counts once it has given a batch a
core: the start of processes is not timed, and each has as many batches left as the others. Rounds
alternate; a row is the median round. The pixels are compared where both loops compute the same.
Writes data/examples.csv and its provenance.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from transformers import ViTImageProcessor

from examples import replace_dataloader, train, transformers_processor
from examples.replace_dataloader import MEAN, STD
from harness import provenance
from harness.corpora import manifest, synthetic
from harness.measures import psnr_db
from harness.spec import CorpusSpec
from paper.csvfile import write_table
from wallclock.files import pretty_json, write_text
from wallclock.machine import usable_cores
from wallclock.summary import median, quantile

#: Image set → generated files, and how often each is taken in one round, for each core.
_SETS = {"small_256": (1000, 1), "original": (48, 6)}


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    # Every core loads: a second thread for the normalization would only wait for one.
    torch.set_num_threads(1)
    rounds, data = parser.parse_args().rounds, provenance.ROOT / "data"
    cores = usable_cores()
    processor = ViTImageProcessor(image_mean=MEAN.tolist(), image_std=STD.tolist())
    given: dict[str, tuple[Any, dict[str, Any]]] = {
        "replace_dataloader": (replace_dataloader, {"workers": cores}),
        "transformers_processor": (transformers_processor, {"processor": processor}),
        "train": (train, {"workers": cores}),
    }
    rows = []
    for images, (n, times) in _SETS.items():
        paths = _paths(images, n, data / "corpora") * times * cores
        for name, (example, fixed) in given.items():
            loops = [partial(loop, **fixed) for loop in (example.before, example.after)]
            rows.append(_row(name, images, paths, loops, rounds))
    write_table(data / "examples.csv", tuple(rows[0]), rows)
    write_text(data / "examples.meta.json", pretty_json(provenance.identity(("wallclock",))))
    for row in rows:
        print(*row.values(), sep="  ")


def _paths(images: str, n: int, cache: Path) -> list[str]:
    spec = CorpusSpec("synthetic")
    made = manifest.load(Path(synthetic.prepare(spec, images, n, cache, lambda *_: None).manifest))
    return [f"{made.root}/{item.path}" for item in made.valid[:n]]


def _row(
    name: str,
    images: str,
    paths: Sequence[str],
    loops: Sequence[Callable[..., Iterator[torch.Tensor]]],
    rounds: int,
) -> dict[str, object]:
    rates = [[_rate(loop(paths)) for loop in loops] for _ in range(rounds)]
    levels = [_levels(torch.cat([batch.clone() for batch in loop(paths[:48])])) for loop in loops]
    decibels = [psnr_db(ours, theirs) for theirs, ours in zip(*levels, strict=True)]
    return {
        "example": name,
        "images": images,
        "n_images": len(paths),
        "rounds": rounds,
        "before_img_per_s": median([theirs for theirs, _ in rates]),
        "after_img_per_s": median([ours for _, ours in rates]),
        "speedup": median([ours / theirs for theirs, ours in rates]),
        "psnr_p5_db": None if name == "train" else quantile(decibels, 0.05),
        "cpu": provenance.machine()["cpu"],
        "origin": "measured",
    }


def _rate(loop: Iterator[torch.Tensor]) -> float:
    for _ in range(usable_cores()):
        next(loop)
    began = perf_counter()
    count = sum(len(batch) for batch in loop)
    return count / (perf_counter() - began)


def _levels(batch: torch.Tensor) -> Any:
    pixels = (batch.permute(0, 2, 3, 1) * STD + MEAN) * 255
    return pixels.round().clamp(0, 255).to(torch.uint8).numpy()


if __name__ == "__main__":
    main()
