"""Engine `dataloader`: torch's DataLoader processes load batches while the main process runs the model.

Workers read, decode, resize, normalize and assemble; the model stays outside them. Every worker
writes down when each stage of each image began and ended (`perf_counter_ns` is one clock for all
processes of a machine), and sends the marks along with the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from wallclock.corpus.manifest import Item
from wallclock.engines.pipeline import Loader, build_loader
from wallclock.errors import ImageError
from wallclock.spec import IMAGENET, Recipe, Statistics
from wallclock.stages.assemble import stack_shared
from wallclock.thread_counts import set_threads

#: Batches that each worker may have ready: torch's own default.
PREFETCH = 2

#: Stages of one image inside a worker, in order: marks hold their start and the last one's end.
IMAGE_STAGES = ("read", "decode", "resize", "normalize")


@dataclass
class Batch:
    """What a worker sends: n images, and how they came about.

    `images`: float32 (n, 3, h, w), or uint8 (n, h, w, 3) where the device normalizes.
    `marks`: int64 (n, 5), ns: start of each stage, then the end.
    `assembled`: start and end of `assemble`, ns. `worker`: its number, or -1 in the main process.
    """

    ids: list[str]
    images: torch.Tensor
    marks: npt.NDArray[np.int64]
    assembled: tuple[int, int]
    worker: int
    failures: list[dict[str, str]] = field(default_factory=list)

    def pin_memory(self) -> Batch:
        """DataLoader calls this where `pin_memory=True`: the copy to the device can then be queued."""
        self.images = self.images.pin_memory()
        return self


class Images(Dataset[Batch]):
    """A corpus as a map-style dataset that answers a list of positions with a whole batch."""

    def __init__(
        self,
        items: Sequence[Item],
        root: Path,
        recipe: Recipe,
        input_px: int,
        statistics: Statistics = IMAGENET,
    ) -> None:
        self._items = items
        self._root = root
        self._recipe = recipe
        self._input_px = input_px
        self._statistics = statistics
        # Bound in the process that loads: libraries' handles do not travel.
        self._loader: Loader | None = None

    def __len__(self) -> int:
        return len(self._items)

    def __getitems__(self, positions: Sequence[int]) -> Batch:
        """Load the images at these positions; those that fail are listed, not filled in."""
        if self._loader is None:
            self._loader = build_loader(self._recipe, self._input_px, self._root, self._statistics)
        ids, images, marks, failures = [], [], [], []
        items = [self._items[position % len(self._items)] for position in positions]
        self._loader.expect(items)
        for item in items:
            try:
                image, times = _load(self._loader, item)
            except ImageError as error:
                failures.append({"id": item.id, "stage": error.stage, "reason": error.reason})
                continue
            ids.append(item.id)
            images.append(image)
            marks.append(times)
        info = get_worker_info()
        began = perf_counter_ns()
        if not images:
            batch = torch.empty((0, 3, self._input_px, self._input_px))
        elif info is None:
            batch = torch.from_numpy(self._loader.assemble(images))
        else:
            batch = stack_shared(images)
        return Batch(
            ids,
            batch,
            np.array(marks, dtype=np.int64).reshape(-1, len(IMAGE_STAGES) + 1),
            (began, perf_counter_ns()),
            -1 if info is None else info.id,
            failures,
        )


def batches(
    items: Sequence[Item],
    root: Path,
    recipe: Recipe,
    input_px: int,
    positions: Sequence[Sequence[int]],
    statistics: Statistics = IMAGENET,
) -> Iterator[Batch]:
    """Start the workers and return an iterator over the batches, in order.

    Args:
        positions: one list of positions a batch; a position past the end starts over.
        statistics: what `normalize` takes off and divides by.
    """
    return start(Images(items, root, recipe, input_px, statistics), recipe, positions)


def start(
    images: Dataset[Batch], recipe: Recipe, positions: Sequence[Sequence[int]]
) -> Iterator[Batch]:
    """Start the workers over a dataset that answers a list of positions with a batch."""
    parallel: dict[str, Any] = {}
    if recipe.workers:
        parallel = {
            "prefetch_factor": PREFETCH,
            "persistent_workers": True,
            "multiprocessing_context": recipe.start_method,
            "worker_init_fn": _Initializer(recipe),
        }
    loader = DataLoader(
        images,
        batch_sampler=positions,  # type: ignore[arg-type]
        num_workers=recipe.workers,
        collate_fn=_as_it_is,
        pin_memory=recipe.device == "cuda",
        **parallel,
    )
    return iter(loader)


def ready(loaded: Iterator[Batch]) -> int:
    """How many batches are loaded and wait; 0 where the main process loads them itself.

    torch does not say so in public: its iterator keeps those that came out of turn, its queue the rest.
    """
    queue, early = getattr(loaded, "_data_queue", None), getattr(loaded, "_task_info", {})
    return (queue.qsize() if queue is not None else 0) + sum(
        len(info) == 2 for info in early.values()
    )


class _Initializer:
    """Run in each worker at its start; a class, because `spawn` pickles it."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe

    def __call__(self, worker: int) -> None:
        # torch sets its own threads to 1 in a worker; OpenCV's pool would stay as wide as the machine.
        set_threads(self._recipe, uses_torch=False)


def _as_it_is(batch: Any) -> Any:
    return batch


def _load(loader: Loader, item: Item) -> tuple[npt.NDArray[Any], tuple[int, ...]]:
    start = perf_counter_ns()
    data = loader.read(item)
    was_read = perf_counter_ns()
    pixels = loader.decode(item, data)
    decoded = perf_counter_ns()
    pixels = loader.resize(item, pixels)
    resized = perf_counter_ns()
    image = loader.normalize(pixels)
    return image, (start, was_read, decoded, resized, perf_counter_ns())
