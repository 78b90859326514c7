"""Protocol `ceiling`: what one part could do if nothing else limited it.

`decode_files`, `decode_memory`: read, decode and resize in one process a core, pinned to it,
without a loader; bytes from files or from memory. `forward`: the model alone on a batch on the
device. `h2d`: the copy to the device alone. `synthetic`: everything from h2d to the sink, on a
batch that costs nothing to load.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from wallclock.clock import gc_disabled
from wallclock.corpus import readers
from wallclock.corpus.manifest import Item, Manifest
from wallclock.engines import pipeline
from wallclock.engines.batch import Batch
from wallclock.engines.inference import open_inference
from wallclock.engines.writer import open_writer
from wallclock.errors import Unavailable, check_name
from wallclock.measure.protocol import (
    Measurement,
    Progress,
    noise_batch,
    open_corpus,
    peak_memory_mib,
    set_page_cache,
)
from wallclock.spec import Cell, ModelSpec, Recipe
from wallclock.stages import transfer
from wallclock.thread_counts import set_threads

#: One iteration of a timed loop: processes some images and returns how many.
Step = Callable[[], int]

_WARM_UP_STEPS = 3


def ceiling(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Run the part that `params.kind` names for `params.seconds`.

    Samples: `wall`. Values: `n_loaded`; of `decode`, the rate of each core too.
    """
    recipe, model = cell.recipe, cell.model
    kind = check_name(str(cell.params["kind"]), _KINDS, "ceiling")
    seconds = float(cell.params["seconds"])
    manifest = open_corpus(cell, "jpeg")
    values: dict[str, Any] = {**set_threads(recipe, uses_torch=kind in ("forward", "synthetic"))}
    values |= set_page_cache(cell, manifest) | {"n_unique": len(manifest.items)}
    progress(0)
    if kind.startswith("decode"):
        in_memory = kind == "decode_memory"
        passes = _on_every_core(recipe, model, manifest, in_memory, seconds)
        rates = [n / ns * 1e9 for n, ns in passes]
        n, wall = sum(n for n, _ in passes), max(ns for _, ns in passes)
        values |= {"img_per_s": sum(rates), "core_img_per_s": rates}
    else:
        with _DEVICE_SIDE[kind](recipe, model, work) as step:
            n, wall = _timed(step, seconds)
        values["img_per_s"] = n / wall * 1e9
    values |= {"n_loaded": n, "peak_memory_mib": peak_memory_mib()}
    return Measurement({"wall": [wall]}, values)


def _timed(step: Step, seconds: float) -> tuple[int, int]:
    """Images and nanoseconds of a loop over `step`, after a few steps of warm-up."""
    for _ in range(_WARM_UP_STEPS):
        step()
    n = 0
    with gc_disabled():
        start = now = perf_counter_ns()
        while now - start < seconds * 1e9:
            n += step()
            now = perf_counter_ns()
    return n, now - start


def _on_every_core(
    recipe: Recipe, model: ModelSpec, manifest: Manifest, in_memory: bool, seconds: float
) -> list[tuple[int, int]]:
    """Images and nanoseconds of each core's process."""
    context = multiprocessing.get_context("fork")
    cores = sorted(os.sched_getaffinity(0))
    items = manifest.items
    ready = context.Barrier(len(cores))
    results: Any = context.SimpleQueue()

    def work(core: int, share: Sequence[Item]) -> None:
        os.sched_setaffinity(0, {core})
        set_threads(recipe, uses_torch=False)
        try:
            step = _decoding(recipe, model, manifest.root, share, in_memory=in_memory)
            step()
        except BaseException:
            # Or the others would wait for this one forever.
            ready.abort()
            raise
        ready.wait()
        results.put(_timed(step, seconds))

    workers = []
    for number, core in enumerate(cores):
        # Every core starts elsewhere in the list, so that all cores see the same mix.
        start = len(items) * number // len(cores)
        share = [*items[start:], *items[:start]]
        workers.append(context.Process(target=work, args=(core, share), daemon=True))
        workers[-1].start()
    for worker in workers:
        worker.join()
    codes = [worker.exitcode for worker in workers]
    if any(codes):
        raise RuntimeError(f"a pinned process ended with status {codes}")
    return [results.get() for _ in workers]


def _decoding(
    recipe: Recipe, model: ModelSpec, root: Path, items: Sequence[Item], *, in_memory: bool
) -> Step:
    """One image a step, into a row of the batch that the recipe's loader would deliver."""
    reader = readers.make(root)
    reader.prefetch(items)
    in_ram = [reader(item) for item in items] if in_memory else []
    load_row = _load_row(recipe, model, root, reader)
    numbers = itertools.count()

    def step() -> int:
        number = next(numbers)
        at = number % len(items)
        data = in_ram[at] if in_memory else reader(items[at])
        load_row(items[at], data, number % recipe.batch_size)
        return 1

    return step


def _load_row(
    recipe: Recipe, model: ModelSpec, root: Path, reader: readers.Reader
) -> Callable[[Item, bytes, int], None]:
    """Decode and resize bytes into the batch's row of that number."""
    batch = noise_batch(recipe.batch_size, model.input_px, uint8=recipe.normalize_on == "device")
    if recipe.engine == "threads":
        in_place = pipeline.in_place_stages(recipe, model, reader)
        destinations = [in_place.as_destination(row) for row in batch]

        def into_place(item: Item, data: bytes, row: int) -> None:
            in_place.resize_into(item, in_place.decode(item, data), destinations[row])

        return into_place
    load = pipeline.load_stages(recipe, model, root)

    def into_batch(item: Item, data: bytes, row: int) -> None:
        batch[row] = load.normalize(load.resize(item, load.decode(item, data)))

    return into_batch


def _synchronized(
    run: Callable[[], object], synchronize: Callable[[], object] | None, size: int
) -> Step:
    def step() -> int:
        run()
        if synchronize is not None:
            synchronize()
        return size

    return step


@contextmanager
def _forward(recipe: Recipe, model: ModelSpec, work: Path) -> Iterator[Step]:
    stages = pipeline.device_stages(recipe, model, work)
    on_device = stages.h2d(_host_batch(recipe, model).images)
    yield _synchronized(lambda: stages.forward(on_device), stages.synchronize, recipe.batch_size)


@contextmanager
def _h2d(recipe: Recipe, model: ModelSpec, work: Path) -> Iterator[Step]:
    if recipe.device != "cuda":
        raise Unavailable("the device is the host: nothing is copied")
    move, images = transfer.make(recipe.device), _host_batch(recipe, model).images
    yield _synchronized(lambda: move.h2d(images), move.synchronize, recipe.batch_size)


@contextmanager
def _synthetic(recipe: Recipe, model: ModelSpec, work: Path) -> Iterator[Step]:
    stages, batch = pipeline.device_stages(recipe, model, work), _host_batch(recipe, model)
    in_thread = recipe.engine == "threads"
    with open_writer(stages.serialize, stages.finish, in_thread=in_thread) as writer:
        inference = open_inference(stages, recipe, writer)

        def step() -> int:
            inference.submit(batch, 0)
            return recipe.batch_size

        yield step
        inference.finish()


def _host_batch(recipe: Recipe, model: ModelSpec) -> Batch:
    """Noise as the recipe's loader delivers it, pinned where there is a GPU."""
    import torch

    uint8 = recipe.normalize_on == "device"
    images = torch.from_numpy(noise_batch(recipe.batch_size, model.input_px, uint8=uint8))
    if recipe.device == "cuda":
        images = images.pin_memory()
    ids = [f"synthetic-{i}" for i in range(recipe.batch_size)]
    return Batch(ids, range(len(ids)), images.numpy() if recipe.engine == "threads" else images)


_DEVICE_SIDE: dict[str, Callable[[Recipe, ModelSpec, Path], AbstractContextManager[Step]]] = {
    "forward": _forward,
    "h2d": _h2d,
    "synthetic": _synthetic,
}
_KINDS = ("decode_files", "decode_memory", *_DEVICE_SIDE)
