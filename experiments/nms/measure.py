"""Protocol `nms`: a detector's post-processing, non-maximum suppression in three ways.

A box is (left, top, right, bottom) in pixels, of an area above 0. Boxes are taken by falling score;
one is dropped if its overlap with a box that was kept before (intersection over union) exceeds a
threshold. All three ways compute the overlap in float64 with the operations of torchvision's
kernel, in its order: they keep the same boxes. Each gets them in the form that it works on: lists
of numbers, an array, a tensor. What turns one into another is not timed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.peers import import_or_unavailable
from harness.processes import gc_disabled
from harness.protocols.protocol import Measurement, Progress
from harness.spec import Cell
from wallclock.errors import Unavailable

Boxes = npt.NDArray[np.float64]
Box = Sequence[float]


@dataclass(frozen=True)
class Detections:
    """The boxes (n, 4) and scores (n,) of an image, float64."""

    boxes: Boxes
    scores: Boxes


def in_python(boxes: Sequence[Box], scores: Sequence[float], threshold: float) -> list[int]:
    """The rows that are kept, by falling score. Plain loops over lists of numbers."""
    areas = [(right - left) * (bottom - top) for left, top, right, bottom in boxes]
    waiting = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
    kept = []
    while waiting:
        best, *others = waiting
        kept.append(best)
        waiting = []
        for row in others:
            shared = _intersection(boxes[best], boxes[row])
            if shared / (areas[best] + areas[row] - shared) <= threshold:
                waiting.append(row)
    return kept


def _intersection(a: Box, b: Box) -> float:
    """The area in pixels that two boxes have in common."""
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    return width * height


def in_numpy(boxes: Boxes, scores: Boxes, threshold: float) -> npt.NDArray[np.int64]:
    """The rows that are kept, by falling score. A loop over these; their rivals at once."""
    left, top, right, bottom = boxes.T
    areas = (right - left) * (bottom - top)
    waiting = np.argsort(-scores, kind="stable")
    kept = []
    while waiting.size:
        best, others = waiting[0], waiting[1:]
        kept.append(best)
        width = np.minimum(right[best], right[others]) - np.maximum(left[best], left[others])
        height = np.minimum(bottom[best], bottom[others]) - np.maximum(top[best], top[others])
        shared = width.clip(0) * height.clip(0)
        overlap = shared / (areas[best] + areas[others] - shared)
        waiting = others[overlap <= threshold]
    return np.array(kept, dtype=np.int64)


def _prepare_python(detections: Detections, threshold: float) -> Callable[[], Any]:
    boxes, scores = detections.boxes.tolist(), detections.scores.tolist()
    return lambda: in_python(boxes, scores, threshold)


def _prepare_numpy(detections: Detections, threshold: float) -> Callable[[], Any]:
    return lambda: in_numpy(detections.boxes, detections.scores, threshold)


def _prepare_torchvision(detections: Detections, threshold: float) -> Callable[[], Any]:
    nms = import_or_unavailable("torchvision.ops").nms
    import torch

    boxes, scores = torch.from_numpy(detections.boxes), torch.from_numpy(detections.scores)
    return lambda: nms(boxes, scores, threshold)


#: Name → what binds an image's boxes, each in the form that it works on, to a call. The first is
#: what the others are compared with. One whose library is missing raises `Unavailable`.
IMPLEMENTATIONS: Mapping[str, Callable[[Detections, float], Callable[[], Any]]] = {
    "python": _prepare_python,
    "numpy": _prepare_numpy,
    "torchvision": _prepare_torchvision,
}
#: What they need besides numpy.
DISTRIBUTIONS = ("torchvision",)


def detections(n: int, seed: int) -> Detections:
    """`n` boxes as a detector proposes them for an image of 640 × 640 pixels, some eight an object.

    The boxes of an object are its own, shifted and stretched by a tenth.
    """
    rng = np.random.default_rng(seed)
    n_objects = max(1, n // 8)
    centres = rng.uniform(0, 640, (n_objects, 2))
    sizes = rng.uniform(20, 200, (n_objects, 2))
    objects = rng.integers(0, n_objects, n)
    stretched = sizes[objects] * rng.uniform(0.9, 1.1, (n, 2))
    middles = centres[objects] + sizes[objects] * rng.uniform(-0.1, 0.1, (n, 2))
    boxes = np.concatenate([middles - stretched / 2, middles + stretched / 2], axis=1)
    return Detections(boxes, rng.random(n))


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
    images = [detections(params["boxes"], seed) for seed in range(params["n_images"])]
    calls, unavailable = _prepare_all(images, params["iou_threshold"])
    kept = {name: [np.asarray(run()).tolist() for run in runs] for name, runs in calls.items()}
    reference = next(iter(kept.values()))
    values = {
        "n_kept": sum(map(len, reference)) / len(reference),
        "different": {
            name: sum(mine != theirs for mine, theirs in zip(rows, reference, strict=True))
            for name, rows in kept.items()
        },
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


def _prepare_all(
    images: Sequence[Detections], threshold: float
) -> tuple[Mapping[str, list[Callable[[], Any]]], Mapping[str, str]]:
    """Way → a call for each image; and the ways that are not here, with the reason."""
    calls, unavailable = {}, {}
    for name, prepare in IMPLEMENTATIONS.items():
        try:
            calls[name] = [prepare(image, threshold) for image in images]
        except Unavailable as error:
            unavailable[name] = str(error)
    return calls, unavailable


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
