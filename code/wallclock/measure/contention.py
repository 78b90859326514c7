"""Protocol `contention`: what loading an image costs, alone and with other processes loading too.

No model, no transfer, no end-to-end pass: processes read, decode, resize, normalize and assemble
the cell's images again and again for a fixed time, independently.
"""

from __future__ import annotations

import multiprocessing
import os
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import NamedTuple

import numpy as np

from wallclock.clock import LOADING_STAGES, gc_disabled
from wallclock.corpus.manifest import Manifest
from wallclock.engines.dataloader import ImageDataset
from wallclock.errors import UserError
from wallclock.measure.protocol import Measurement, Progress, open_corpus, set_page_cache
from wallclock.spec import Cell
from wallclock.thread_counts import set_threads


class _ProcessPass(NamedTuple):
    """One process's pass: images loaded, wall and CPU nanoseconds, each call of each stage."""

    images: int
    wall_ns: int
    cpu_ns: int
    samples: dict[str, list[int]]


def contention(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Load for `params.seconds` with 1, 2, 4 … processes up to the cores, and with twice the cores.

    Samples: each stage's calls of one process alone. Values, by the number of processes: `rates`,
    images a second of all together, and `cpu_s`, CPU seconds of an image, which a competing process
    does not lengthen; `mean_bytes` of an image.
    """
    manifest = open_corpus(cell)
    if not manifest.valid:
        raise UserError("the corpus holds no valid image to load")
    values = set_page_cache(cell, manifest)
    values["mean_bytes"] = float(np.mean([item.bytes for item in manifest.valid]))
    rates, cpu_s, samples = dict[str, float](), dict[str, float](), dict[str, list[int]]()
    for count in process_counts(len(os.sched_getaffinity(0))):
        passes = _run_concurrently(cell, manifest, count)
        images = sum(one.images for one in passes)
        rates[str(count)] = sum(one.images / one.wall_ns * 1e9 for one in passes)
        cpu_s[str(count)] = sum(one.cpu_ns for one in passes) / 1e9 / images
        if count == 1:
            values["n_embedded"], samples = images, passes[0].samples
        progress(images)
    return Measurement(samples, values | {"rates": rates, "cpu_s": cpu_s})


def process_counts(cores: int) -> list[int]:
    """1, 2, 4 … below the cores, the cores, and twice as many."""
    powers = (2**power for power in range(cores.bit_length()))
    return [*(count for count in powers if count < cores), cores, 2 * cores]


def _run_concurrently(cell: Cell, manifest: Manifest, count: int) -> list[_ProcessPass]:
    """Passes of `count` processes that begin together."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(count)
    started = []
    for number in range(count):
        receiver, sender = context.Pipe(duplex=False)
        arguments = (cell, manifest, number / count, barrier, sender)
        process = context.Process(target=_child, args=arguments, daemon=True)
        process.start()
        sender.close()
        started.append((process, receiver))
    passes: list[_ProcessPass] = []
    for process, receiver in started:
        with suppress(EOFError):
            passes.append(receiver.recv())
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a loading process ended with status {process.exitcode}")
    return passes


def _child(
    cell: Cell, manifest: Manifest, offset: float, barrier: Barrier, sender: Connection
) -> None:
    set_threads(cell.recipe, uses_torch=False)
    dataset = ImageDataset(manifest, cell.recipe, cell.model)
    size, position = cell.recipe.batch_size, int(offset * len(dataset))
    deadline_ns = float(cell.params["seconds"]) * 1e9
    dataset[range(position, position + size)]
    barrier.wait()
    samples: dict[str, list[int]] = {name: [] for name in LOADING_STAGES}
    images = 0
    with gc_disabled():
        began, cpu = perf_counter_ns(), process_time_ns()
        while perf_counter_ns() - began < deadline_ns:
            batch = dataset[range(position, position + size)]
            position, images = position + size, images + len(batch.ids)
            for marks in batch.marks:
                durations = np.diff(marks.times, axis=1)
                for column, stage in enumerate(marks.stages):
                    samples[stage] += durations[:, column].tolist()
        wall, cpu = perf_counter_ns() - began, process_time_ns() - cpu
    sender.send(_ProcessPass(images, wall, cpu, samples))
