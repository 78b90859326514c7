"""Protocol `ceiling`: one part of a job, and nothing else that limits it.

`decode_files`, `decode_memory`: read, decode and resize in one process a core, pinned to it,
without a loader; bytes from files or from memory. `engine`: the threads engine, which reads the
files, with a decode and a resize that return at once. `forward`: the model alone on a batch on the
device. `h2d`: the copy to the device alone. `synthetic`: everything from h2d to the sink, on a
batch that costs nothing to load.
"""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from harness.corpora import readers
from harness.corpora.manifest import Item, Manifest
from harness.engines import pipeline
from harness.engines.inference import open_inference
from harness.engines.loaders import open_threads
from harness.engines.positions import CyclicPositions
from harness.engines.writer import open_writer
from harness.processes import gc_disabled, set_threads
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, Progress
from harness.spec import Cell
from wallclock.errors import Unavailable, check_name
from wallclock.loader.batch import Batch
from wallclock.loader.prepare import in_place_stages
from wallclock.machine import usable_cores
from wallclock.stages import transfer

#: One iteration of a timed loop: processes some images and returns how many.
Step: TypeAlias = Callable[[], int]

_KINDS = ("decode_files", "decode_memory", "engine", "forward", "h2d", "synthetic")
_WARM_UP_STEPS = 3
#: Images enough for minutes of an engine whose stages cost nothing.
_ENDLESS = 10**7


def ceiling(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Run the part that `params.kind` names for `params.seconds`.

    Samples: `wall`. Values: `n_loaded`; of `decode`, the rate of each core too.
    """
    kind = check_name(str(cell.params["kind"]), _KINDS, "ceiling")
    seconds = float(cell.params["seconds"])
    manifest = protocol.open_corpus(cell, "jpeg")
    uses_torch = kind in ("forward", "synthetic")
    values = protocol.set_conditions(cell, manifest, uses_torch=uses_torch)
    progress(0)
    if kind.startswith("decode"):
        items = manifest.items
        tasks = []
        cores = sorted(os.sched_getaffinity(0))[: usable_cores()]
        for number, core in enumerate(cores):
            # Every core starts elsewhere in the list, so that all cores see the same mix.
            start = len(items) * number // len(cores)
            share = [*items[start:], *items[:start]]
            tasks.append(partial(_pinned, core, cell, manifest, share, seconds))
        passes = protocol.in_processes(tasks)
        rates = [n / ns * 1e9 for n, ns in passes]
        n = sum(n for n, _ in passes)
        wall = max(ns for _, ns in passes)
        values |= {"img_per_s": sum(rates), "core_img_per_s": rates}
    else:
        part = _engine(cell, manifest) if kind == "engine" else _device_side(kind, cell, work)
        with part as step:
            n, wall = _timed(step, seconds)
        values["img_per_s"] = n / wall * 1e9
    values |= {"n_loaded": n, "peak_memory_mib": protocol.peak_memory_mib()}
    return Measurement({"wall": [wall]}, values)


def _timed(step: Step, seconds: float) -> tuple[int, int]:
    """Images and nanoseconds of a loop over `step`, after a few steps of warm-up."""
    with gc_disabled():
        for _ in range(_WARM_UP_STEPS):
            step()
        return protocol.repeat_for(seconds, step)


def _pinned(
    core: int, cell: Cell, manifest: Manifest, share: Sequence[Item], seconds: float
) -> Callable[[], tuple[int, int]]:
    """A loop over a share of the images on one core, of which all steps but the first are timed."""
    os.sched_setaffinity(0, {core})
    set_threads(cell.recipe, uses_torch=False)
    step = _decoding(cell, manifest, share)
    step()
    return partial(_timed, step, seconds)


def _decoding(cell: Cell, manifest: Manifest, items: Sequence[Item]) -> Step:
    """One image a step, into a row of the batch that the recipe's loader would deliver."""
    recipe, model = cell.recipe, cell.model
    reader = readers.make(manifest)
    in_memory = {}
    if cell.params["kind"] == "decode_memory":
        in_memory = {item.id: reader(item) for item in items}
    batch = _noise(cell)
    if recipe.engine == "threads":
        in_place = in_place_stages(pipeline.loading_of(recipe, model), reader)
        destinations = [in_place.as_destination(row) for row in batch]
    else:
        load = pipeline.load_stages(recipe, model, manifest)
    numbers = itertools.count()

    def step() -> int:
        number = next(numbers)
        item, row = items[number % len(items)], number % recipe.batch_size
        data = in_memory[item.id] if in_memory else reader(item)
        if recipe.engine == "threads":
            in_place.fill(item, data, destinations[row])
        else:
            batch[row] = load.normalize(load.resize(item, load.decode(item, data)))
        return 1

    return step


def _noise(cell: Cell) -> Any:
    uint8 = cell.recipe.normalize_on == "device"
    return protocol.noise_batch(cell.recipe.batch_size, cell.model.input_px, uint8=uint8)


@contextmanager
def _engine(cell: Cell, manifest: Manifest) -> Iterator[Step]:
    """A step of one batch, whose images were read but neither decoded nor resized."""
    recipe, model = cell.recipe, cell.model
    positions = CyclicPositions(len(manifest.items), recipe.batch_size, _ENDLESS)
    with open_threads(manifest, recipe, model, positions, pipeline.free_stages) as loader:
        yield lambda: len(next(loader).ids)


@contextmanager
def _device_side(kind: str, cell: Cell, work: Path) -> Iterator[Step]:
    """A step of one batch of noise, which the recipe's loader would deliver."""
    import torch

    recipe, size = cell.recipe, cell.recipe.batch_size
    if kind == "h2d" and recipe.device != "cuda":
        raise Unavailable("the device is the host: nothing is copied")
    images = torch.from_numpy(_noise(cell))
    if recipe.device == "cuda" and recipe.pin_memory:
        images = images.pin_memory()
    host = images.numpy() if recipe.engine == "threads" else images
    if kind == "h2d":
        move = transfer.make(recipe.device)
        yield _synchronized(lambda: move.h2d(host), move.synchronize, size)
        return
    stages = pipeline.device_stages(recipe, cell.model, work)
    if kind == "forward":
        on_device = stages.h2d(host)
        yield _synchronized(lambda: stages.forward(on_device), stages.synchronize, size)
        return
    batch = Batch([f"synthetic-{i}" for i in range(size)], range(size), host)
    in_thread = recipe.engine == "threads"
    with open_writer(stages.serialize, stages.finish, in_thread=in_thread) as writer:
        inference = open_inference(stages, recipe, writer)
        yield _synchronized(lambda: inference.submit(batch, 0), None, size)
        inference.finish()


def _synchronized(
    run: Callable[[], object], synchronize: Callable[[], object] | None, size: int
) -> Step:
    def step() -> int:
        run()
        if synchronize is not None:
            synchronize()
        return size

    return step
