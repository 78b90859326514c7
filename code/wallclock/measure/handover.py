"""Protocol `handover`: what a batch's way from a DataLoader worker to the main process costs in itself.

The engine's floor: one worker sends batches that were ready before; nothing is read, decoded or embedded.
Processor time, not the wall: the two processes work side by side, and cores are what they compete for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time_ns

import numpy as np
import torch
from torch.utils.data import Dataset

from wallclock.clock import collector_paused
from wallclock.engines import dataloader
from wallclock.engines.dataloader import IMAGE_STAGES, Batch
from wallclock.engines.libraries import set_threads
from wallclock.measure.protocol import Measurement, Progress
from wallclock.measure.serial import parts
from wallclock.spec import Cell

_WARM = 8


class _Ready(Dataset[Batch]):
    """Answers with a batch of zeros; says how much processor time its process has used by then."""

    def __init__(self, size: int, input_px: int) -> None:
        self._images = np.zeros((size, 3, input_px, input_px), dtype=np.float32)
        self._ids = [str(number) for number in range(size)]

    def __getitems__(self, positions: Sequence[int]) -> Batch:
        # A new tensor each time: one that was sent before lies in shared memory, and would not be copied again.
        images = torch.from_numpy(self._images)
        marks = np.zeros((len(self._ids), len(IMAGE_STAGES) + 1), dtype=np.int64)
        return Batch(self._ids, images, marks, (process_time_ns(), 0), 0)


def handover(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Send `params.batches` batches of each of `params.batch_sizes` through one worker.

    Samples: `worker-<size>` and `main-<size>`, processor nanoseconds of a batch in either process, one mean
    for each size.
    """
    recipe, model = parts(cell)
    set_threads(recipe, uses_torch=True)
    samples: dict[str, list[int]] = {}
    for size in cell.params["batch_sizes"]:
        count = int(cell.params["batches"])
        one = replace(recipe, workers=1, engine="dataloader", batch_size=int(size))
        loaded = dataloader.start(_Ready(int(size), model.input_px), one, [[0]] * (count + _WARM))
        for _ in range(_WARM):
            batch = next(loaded)
        with collector_paused():
            in_worker, in_main = batch.assembled[0], process_time_ns()
            for _ in range(count):
                batch = next(loaded)
            spent = process_time_ns() - in_main
        samples[f"worker-{size}"] = [(batch.assembled[0] - in_worker) // count]
        samples[f"main-{size}"] = [spent // count]
        progress(count * int(size))
    return Measurement(samples, {"n_batches": int(cell.params["batches"])})
