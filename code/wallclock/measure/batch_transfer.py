"""Protocol `batch_transfer`: IPC cost of one batch, from a DataLoader worker to the main process.

The engine's floor: one worker assembles batches of images that are ready in memory and sends them;
nothing is read, decoded or embedded. CPU time, not wall time: the two processes run concurrently
and compete for cores. Assembling is included because a worker does it in shared memory, whose pages
are new for each batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time_ns, thread_time_ns

import numpy as np
from torch.utils.data import Dataset

from wallclock.clock import gc_disabled
from wallclock.engines.batch import Batch, Marks
from wallclock.engines.dataloader import torch_loader
from wallclock.measure.protocol import Measurement, Progress
from wallclock.spec import Cell
from wallclock.stages import assemble
from wallclock.thread_counts import set_threads

_WARM_UP_BATCHES = 8


class _PrebuiltBatches(Dataset[Batch]):
    """Answers with a batch of zeros, and with the CPU time of its process and thread so far."""

    def __init__(self, size: int, input_px: int) -> None:
        self._images = [np.zeros((3, input_px, input_px), dtype=np.float32) for _ in range(size)]
        self._ids = [str(number) for number in range(size)]

    def __getitems__(self, positions: Sequence[int]) -> Batch:
        used = [process_time_ns(), thread_time_ns()]
        images = assemble.stack_shared(self._images)
        return Batch(
            self._ids, range(len(self._ids)), images, marks=[Marks("cpu", ("CPU time",), used)]
        )


def batch_transfer(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Send `params.batches` batches of each of `params.batch_sizes` through one worker.

    Samples, CPU nanoseconds of a batch, one mean for each size: `assemble-<size>`, the worker's
    thread that loads; `worker-<size>`, its other one, which sends; `main-<size>`.
    """
    recipe, model = cell.recipe, cell.model
    set_threads(recipe, uses_torch=True)
    samples: dict[str, list[int]] = {}
    count = int(cell.params["batches"])
    for size in map(int, cell.params["batch_sizes"]):
        one_worker = replace(recipe, workers=1, engine="dataloader", batch_size=size)
        dataset = _PrebuiltBatches(size, model.input_px)
        batches = iter(torch_loader(dataset, one_worker, [[0]] * (count + _WARM_UP_BATCHES)))
        for _ in range(_WARM_UP_BATCHES):
            batch = next(batches)
        with gc_disabled():
            before, main = batch.marks[0].times[0], process_time_ns()
            for _ in range(count):
                batch = next(batches)
            spent = process_time_ns() - main
        in_process, in_thread = (batch.marks[0].times[0] - before).tolist()
        samples[f"assemble-{size}"] = [in_thread // count]
        samples[f"worker-{size}"] = [max(0, in_process - in_thread) // count]
        samples[f"main-{size}"] = [spent // count]
        progress(count * size)
    return Measurement(samples, {"n_batches": count})
