"""Protocol `batch_transfer`: what a batch's way from a DataLoader worker to the main process costs in itself.

The engine's floor: one worker assembles batches of images that were ready before and sends them; nothing is
read, decoded or embedded. Processor time, not the wall: the two processes work side by side, and cores are
what they compete for. Assembling is in it because a worker does it in shared memory, whose pages are new for each
batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time_ns, thread_time_ns

import numpy as np
from torch.utils.data import Dataset

from wallclock.clock import gc_disabled
from wallclock.engines import dataloader
from wallclock.engines.dataloader import IMAGE_STAGES, Batch
from wallclock.measure.protocol import Measurement, Progress
from wallclock.spec import Cell
from wallclock.stages import assemble
from wallclock.thread_counts import set_threads

_WARM = 8


class _Ready(Dataset[Batch]):
    """Answers with a batch of zeros; says how much processor time its process and its thread have used by then."""

    def __init__(self, size: int, input_px: int) -> None:
        self._images = [np.zeros((3, input_px, input_px), dtype=np.float32) for _ in range(size)]
        self._ids = [str(number) for number in range(size)]

    def __getitems__(self, positions: Sequence[int]) -> Batch:
        used = process_time_ns(), thread_time_ns()
        images = assemble.stack_shared(self._images)
        marks = np.zeros((len(self._ids), len(IMAGE_STAGES) + 1), dtype=np.int64)
        return Batch(self._ids, images, marks, used, 0)


def batch_transfer(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Send `params.batches` batches of each of `params.batch_sizes` through one worker.

    Samples, processor nanoseconds of a batch, one mean for each size: `assemble-<size>`, the worker's thread that
    loads; `worker-<size>`, its other one, which sends; `main-<size>`.
    """
    recipe, model = cell.recipe, cell.model
    set_threads(recipe, uses_torch=True)
    samples: dict[str, list[int]] = {}
    count = int(cell.params["batches"])
    for size in map(int, cell.params["batch_sizes"]):
        one = replace(recipe, workers=1, engine="dataloader", batch_size=size)
        loaded = dataloader.start(_Ready(size, model.input_px), one, [[0]] * (count + _WARM))
        for _ in range(_WARM):
            batch = next(loaded)
        with gc_disabled():
            (process, thread), main = batch.assembled, process_time_ns()
            for _ in range(count):
                batch = next(loaded)
            spent = process_time_ns() - main
        in_process, in_thread = batch.assembled[0] - process, batch.assembled[1] - thread
        samples[f"assemble-{size}"] = [in_thread // count]
        samples[f"worker-{size}"] = [max(0, in_process - in_thread) // count]
        samples[f"main-{size}"] = [spent // count]
        progress(count * size)
    return Measurement(samples, {"n_batches": count})
