"""What a prediction needs beyond a serial pass: the step time of a batch, and what company costs.

Protocol `step`: h2d, forward and d2h at several batch sizes and dtypes. Protocol `contention`: what loading an
image costs with several processes at it, and what handing a batch from one process to another costs. Neither
runs a pipeline end to end: a prediction from them can be wrong.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any

import numpy as np

from wallclock.clock import collector_paused
from wallclock.corpus.manifest import Item, Manifest
from wallclock.engines.libraries import set_threads
from wallclock.engines.pipeline import Floats, Loader, build_loader
from wallclock.errors import ImageError, UserError
from wallclock.measure.protocol import Measurement, Progress, open_corpus
from wallclock.measure.serial import parts
from wallclock.spec import Cell, ModelSpec, Recipe
from wallclock.stages import forward, transfer

#: Timed passes of a batch: the median of three is enough for a rate, and a fourth on a CPU is seconds.
_PASSES = 3


def step(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Time `params.batch_sizes` × `params.dtypes`, each dtype within `params.budget_s` seconds.

    Samples: `<stage> <dtype> <batch size>`, one a batch, for h2d, forward and d2h. A batch size that the
    budget has no room for is left out, the smallest never.
    """
    recipe, model = parts(cell)
    threads = set_threads(recipe, uses_torch=model.weights != "none")
    largest = max(cell.params["batch_sizes"])
    images = _images(open_corpus(cell), recipe, model, largest)
    samples: dict[str, list[int]] = {}
    digest = ""
    for dtype in cell.params["dtypes"]:
        network = forward.make(model, recipe.device, dtype)
        digest = digest or network.weights_digest
        left, per_image = float(cell.params["budget_s"]) * 1e9, 0.0
        for size in sorted(cell.params["batch_sizes"]):
            if per_image * size > left:
                break
            began = perf_counter_ns()
            for stage, found in _timed(network, images[:size], recipe, model).items():
                samples[f"{stage} {dtype} {size}"] = found
            spent = perf_counter_ns() - began
            left, per_image = left - spent, spent / size
            progress(size)
    return Measurement(samples, {**threads, "weights_digest": digest})


def _timed(network: forward.Forward, images: Floats, recipe: Recipe, model: ModelSpec) -> dict[str, list[int]]:
    move = transfer.make(recipe.device if model.weights != "none" else "null")
    wait = move.synchronize or (lambda: None)
    found: dict[str, list[int]] = {"h2d": [], "forward": [], "d2h": []}
    with collector_paused():
        for index in range(_PASSES + 1):
            marks = [perf_counter_ns()]
            on_device = move.h2d(images)
            wait()
            marks.append(perf_counter_ns())
            result = network.run(on_device)
            wait()
            marks.append(perf_counter_ns())
            move.d2h(result)
            marks.append(perf_counter_ns())
            if index:  # the first pays for first-shape kernels and first allocations
                for stage, began, ended in zip(found, marks, marks[1:], strict=False):
                    found[stage].append(ended - began)
    return found


def _images(manifest: Manifest, recipe: Recipe, model: ModelSpec, count: int) -> Floats:
    """The corpus's first images as one batch; a small corpus repeats."""
    loader = build_loader(recipe, model.input_px, manifest.root, model.statistics)
    loaded = [image for image in (_load(loader, item) for item in manifest.sound[:count]) if image is not None]
    if not loaded:
        raise UserError("every image of the sample failed: none is left to run the network on")
    return np.stack([loaded[position % len(loaded)] for position in range(count)])


def _load(loader: Loader, item: Item) -> Floats | None:
    try:
        return loader.normalize(loader.resize(loader.decode(item, loader.read(item))))
    except ImageError:
        return None


def contention(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Core seconds of loading an image with 1, 2, … processes at once; and of handing a batch over.

    Samples: `load <processes>`, core ns of an image, one a process; `give <batch size>` and `take <batch
    size>`, core ns of a batch's way into shared memory and out of it, one a batch.
    """
    recipe, model = parts(cell)
    threads = set_threads(recipe, uses_torch=False)
    manifest = open_corpus(cell)
    samples: dict[str, list[int]] = {}
    for processes in cell.params["processes"]:
        samples[f"load {processes}"] = _load_in(processes, manifest, recipe, model)
        progress(processes)
    for size in cell.params["batch_sizes"]:
        samples[f"give {size}"], samples[f"take {size}"] = _handed_over(size, model.input_px)
    return Measurement(samples, {**threads, "cores": len(os.sched_getaffinity(0))})


def _load_in(processes: int, manifest: Manifest, recipe: Recipe, model: ModelSpec) -> list[int]:
    context = multiprocessing.get_context("fork")
    start, pipes, children = context.Barrier(processes), [], []
    for index in range(processes):
        receiver, sender = context.Pipe(duplex=False)
        # Each begins elsewhere, so that no two are at the same image at once.
        items = manifest.sound[index::processes] + manifest.sound[:index]
        child = context.Process(target=_loading, args=(manifest, items, recipe, model, start, sender), daemon=True)
        child.start()
        sender.close()
        pipes.append(receiver)
        children.append(child)
    try:
        found = [int(pipe.recv()) for pipe in pipes]
    except EOFError as error:
        raise RuntimeError(f"one of {processes} loading processes ended without a result") from error
    finally:
        for child in children:
            child.join()
    return found


def _loading(
    manifest: Manifest, items: Sequence[Item], recipe: Recipe, model: ModelSpec, start: Barrier, sender: Connection
) -> None:
    set_threads(recipe, uses_torch=False)
    loader = build_loader(recipe, model.input_px, manifest.root, model.statistics)
    _load(loader, items[0])
    start.wait(timeout=60)
    began = process_time_ns()
    for item in items:
        _load(loader, item)
    sender.send((process_time_ns() - began) // len(items))


def _handed_over(size: int, input_px: int) -> tuple[list[int], list[int]]:
    """Core ns of sending, and of receiving and first touching, a batch through torch's shared memory."""
    import torch.multiprocessing as shared

    context: Any = shared.get_context("fork")
    queue, echo, go = context.SimpleQueue(), context.SimpleQueue(), context.SimpleQueue()
    child = context.Process(target=_giving, args=(size, input_px, queue, echo, go), daemon=True)
    child.start()
    given, taken = [], []
    for _ in range(_PASSES + 1):
        go.put(True)
        given.append(int(echo.get()))
        began = process_time_ns()
        batch = queue.get()
        batch.numpy().reshape(-1)[::1024].sum()  # a float of every page: the first touch maps it
        taken.append(process_time_ns() - began)
        del batch
    go.put(False)
    child.join()
    return given[1:], taken[1:]


def _giving(size: int, input_px: int, queue: Any, echo: Any, go: Any) -> None:
    import torch

    torch.set_num_threads(1)  # as in a DataLoader worker
    while go.get():
        batch = torch.from_numpy(np.ones((size, 3, input_px, input_px), dtype=np.float32))
        began = process_time_ns()
        queue.put(batch)
        echo.put(process_time_ns() - began)
        del batch
