"""Protocol `nms`: a detector's post-processing, the same boxes suppressed in three ways.

Each gets the boxes in the form that it works on: lists of numbers, an array, a tensor. What turns
one into another is not timed.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from harness import suppression
from harness.protocols.protocol import Measurement, Progress
from harness.spec import Cell
from wallclock.clock import gc_disabled
from wallclock.errors import Unavailable

#: In turn, so that a drift of the machine touches all alike.
_ROUNDS = 5


def nms(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Suppress `params.boxes` boxes of each of `params.n_images` images, in every way there is.

    Before the clock starts each way keeps its boxes once: they must be those of the first one. Then
    the ways take turns, `params.seconds` in all, and each image at least once a turn.

    Samples: by the way's name, ns of each image. Values: `n_kept`, boxes of an image in the mean;
    `different`: way → images of which it kept others than the first; `unavailable`: way → why.
    """
    params = cell.params
    images = [suppression.detections(params["boxes"], seed) for seed in range(params["n_images"])]
    calls, unavailable = _prepare(images, params["iou_threshold"])
    kept = {name: [np.asarray(run()).tolist() for run in runs] for name, runs in calls.items()}
    reference = next(iter(kept.values()))
    values = {
        "n_kept": sum(map(len, reference)) / len(reference),
        "different": {name: _n_unlike(rows, reference) for name, rows in kept.items()},
        "unavailable": unavailable,
    }
    samples: dict[str, list[int]] = {name: [] for name in calls}
    turn_ns = 1e9 * float(params["seconds"]) / len(calls) / _ROUNDS
    with gc_disabled():
        for turn in range(_ROUNDS + 1):
            for name, runs in calls.items():
                taken = _timed(runs, turn_ns)
                # The first turn warms up.
                if turn:
                    samples[name] += taken
                    progress(len(taken))
    return Measurement(samples, values)


def _prepare(
    images: Sequence[suppression.Detections], threshold: float
) -> tuple[Mapping[str, list[Callable[[], Any]]], Mapping[str, str]]:
    """Way → a call for each image; and the ways that are not here, with the reason."""
    calls, unavailable = {}, {}
    for name, prepare in suppression.IMPLEMENTATIONS.items():
        try:
            calls[name] = [prepare(image, threshold) for image in images]
        except Unavailable as error:
            unavailable[name] = str(error)
    return calls, unavailable


def _n_unlike(rows: Sequence[list[int]], reference: Sequence[list[int]]) -> int:
    return sum(mine != theirs for mine, theirs in zip(rows, reference, strict=True))


def _timed(runs: Sequence[Callable[[], Any]], at_least_ns: float) -> list[int]:
    """Nanoseconds of each call, all in turn until the time is over."""
    taken: list[int] = []
    start = now = perf_counter_ns()
    while now - start < at_least_ns or not taken:
        for run in runs:
            before = perf_counter_ns()
            run()
            now = perf_counter_ns()
            taken.append(now - before)
    return taken
