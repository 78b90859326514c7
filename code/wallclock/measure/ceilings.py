"""Protocol `ceiling`: what one part could do if nothing else held it back.

`decode`: read, decode and resize in one process a core, pinned to it, without a loader; bytes from files
or held in memory. `forward`: the model alone on a batch that lies on the device. `h2d`: the copy to
the device alone. `synthetic`: everything from h2d to the sink, on batches that cost nothing to make.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.clock import gc_disabled
from wallclock.corpus import readers
from wallclock.corpus.manifest import Item
from wallclock.engines import consumer as consumers
from wallclock.engines import embedder as embedders
from wallclock.engines import pipeline as pipelines
from wallclock.engines.writer import open_writer
from wallclock.errors import Unavailable, check_name
from wallclock.measure.loading import subset
from wallclock.measure.protocol import (
    Measurement,
    Progress,
    open_corpus,
    peak_memory_mib,
    set_page_cache,
)
from wallclock.spec import Cell, ModelSpec, Recipe
from wallclock.stages import transfer
from wallclock.thread_counts import set_threads

#: One step of a loop: does some images' worth of work and says how many.
Step = Callable[[], int]

_KINDS = ("decode_files", "decode_memory", "forward", "h2d", "synthetic")
_WARM_UP_STEPS = 3


def ceiling(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Run the part that `params.kind` names for `params.seconds`.

    Samples: `wall`. Values: `n_loaded`; of `decode`, the rate of each core too.
    """
    recipe, model = cell.recipe, cell.model
    kind = check_name(str(cell.params["kind"]), _KINDS, "ceiling")
    seconds = float(cell.params["seconds"])
    manifest = open_corpus(cell)
    items = subset(manifest, "all")
    threads = set_threads(recipe, uses_torch=kind in ("forward", "synthetic"))
    cache = set_page_cache(cell, manifest, items)
    values: dict[str, Any] = {
        **threads,
        **manifest.size_stats(),
        "page_cache": cache,
        "n_unique": len(items),
    }
    progress(0)
    if kind.startswith("decode"):
        counts, elapsed = _on_every_core(
            recipe, items, manifest.root, model.input_px, kind, seconds
        )
        rates = [n / s for n, s in zip(counts, elapsed, strict=True)]
        values |= {"n_loaded": sum(counts), "img_per_s": sum(rates), "core_img_per_s": rates}
        wall = round(max(elapsed) * 1e9)
    else:
        with _DEVICE_SIDE[kind](recipe, model, manifest.root, work) as step:
            n, wall = _timed(step, seconds)
        values |= {"n_loaded": n, "img_per_s": n / wall * 1e9}
    values["peak_memory_mib"] = peak_memory_mib()
    return Measurement({"wall": [wall]}, values)


def _timed(step: Step, seconds: float) -> tuple[int, int]:
    """Images and nanoseconds of a loop over `step`, the first few steps left out."""
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
    recipe: Recipe, items: Sequence[Item], root: Path, input_px: int, kind: str, seconds: float
) -> tuple[list[int], list[float]]:
    context = multiprocessing.get_context("fork")
    cores = sorted(os.sched_getaffinity(0))
    ready = context.Barrier(len(cores))
    results: Any = context.SimpleQueue()

    def work(core: int, share: Sequence[Item]) -> None:
        os.sched_setaffinity(0, {core})
        set_threads(recipe, uses_torch=False)
        try:
            step = _decoding(recipe, share, root, input_px, in_memory=kind == "decode_memory")
            step()
        except BaseException:
            # Or the others would wait for this one for ever.
            ready.abort()
            raise
        ready.wait()
        n, took = _timed(step, seconds)
        results.put((n, took / 1e9))

    # Each core starts elsewhere in the list, so that none has the easy images to itself.
    starts = [len(items) * i // len(cores) for i in range(len(cores))]
    workers = [
        context.Process(target=work, args=(core, [*items[start:], *items[:start]]), daemon=True)
        for core, start in zip(cores, starts, strict=True)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise RuntimeError(
            f"a pinned process ended with status {[worker.exitcode for worker in workers]}"
        )
    found = [results.get() for _ in workers]
    return [n for n, _ in found], [took for _, took in found]


def _decoding(
    recipe: Recipe, items: Sequence[Item], root: Path, input_px: int, *, in_memory: bool
) -> Step:
    """One image a step, into a row of the batch that the recipe's loader would hand over."""
    reader = readers.make(root)
    reader.expect(items)
    held = [reader(item) for item in items] if in_memory else []
    fetch = _load_row(recipe, root, input_px, reader)
    at = 0

    def step() -> int:
        nonlocal at
        where = at % len(items)
        fetch(
            items[where], held[where] if in_memory else reader(items[where]), at % recipe.batch_size
        )
        at += 1
        return 1

    return step


def _load_row(
    recipe: Recipe, root: Path, input_px: int, reader: readers.Reader
) -> Callable[[Item, bytes, int], None]:
    """Bytes into the row of that number."""
    if recipe.engine == "threads":
        rows = pipelines.build_rows(recipe, input_px, reader)
        batch = _host_batch(recipe, input_px)
        prepared = [rows.prepare(row) for row in batch]

        def place(item: Item, data: bytes, row: int) -> None:
            rows.place(item, rows.decode(item, data), prepared[row])

        return place
    loader = pipelines.build_loader(recipe, input_px, root)
    floats = np.zeros((recipe.batch_size, 3, input_px, input_px), dtype=np.float32)

    def normalize(item: Item, data: bytes, row: int) -> None:
        floats[row] = loader.normalize(loader.resize(item, loader.decode(item, data)))

    return normalize


def _host_batch(recipe: Recipe, input_px: int) -> npt.NDArray[Any]:
    """A batch of noise as the recipe's loader hands it over: uint8 NHWC, or normalized float32 NCHW."""
    rng = np.random.default_rng(0)
    if recipe.normalize_on == "device":
        return rng.integers(0, 256, (recipe.batch_size, input_px, input_px, 3), dtype=np.uint8)
    return rng.standard_normal((recipe.batch_size, 3, input_px, input_px), dtype=np.float32)


@contextmanager
def _forward(recipe: Recipe, model: ModelSpec, root: Path, work: Path) -> Iterator[Step]:
    pipeline = pipelines.build(recipe, model, root, work)
    wait = pipeline.synchronize or (lambda: None)
    batch = pipeline.h2d(_batch(recipe, model))
    wait()

    def step() -> int:
        pipeline.forward(batch)
        wait()
        return recipe.batch_size

    yield step


@contextmanager
def _h2d(recipe: Recipe, model: ModelSpec, root: Path, work: Path) -> Iterator[Step]:
    if recipe.device != "cuda":
        raise Unavailable("the device is the host: nothing is copied")
    move = transfer.make(recipe.device)
    wait = move.synchronize or (lambda: None)
    batch = _batch(recipe, model)

    def step() -> int:
        move.h2d(batch)
        wait()
        return recipe.batch_size

    yield step


@contextmanager
def _synthetic(recipe: Recipe, model: ModelSpec, root: Path, work: Path) -> Iterator[Step]:
    pipeline = pipelines.build(recipe, model, root, work)
    batch = _batch(recipe, model)
    names = [f"synthetic-{i}" for i in range(recipe.batch_size)]
    with open_writer(pipeline.serialize, pipeline.finish) as writer:
        embed: Callable[[Sequence[str], Any], object]
        if recipe.engine == "threads":
            consumer = consumers.make(pipeline, recipe.device, writer)
            embed = partial(_submit, consumer)
        else:
            embed = embedders.make(pipeline, recipe.device)

        def step() -> int:
            embed(names, batch)
            return recipe.batch_size

        yield step
        if recipe.engine == "threads":
            consumer.drain()


def _submit(consumer: consumers.Consumer, names: Sequence[str], batch: Any) -> None:
    consumer.submit(names, batch, 0)


def _batch(recipe: Recipe, model: ModelSpec) -> Any:
    """The same, pinned where there is a GPU."""
    import torch

    batch = torch.from_numpy(_host_batch(recipe, model.input_px))
    pinned = batch.pin_memory() if recipe.device == "cuda" else batch
    return pinned.numpy() if recipe.engine == "threads" else pinned


_DEVICE_SIDE: dict[str, Callable[[Recipe, ModelSpec, Path, Path], AbstractContextManager[Step]]] = {
    "forward": _forward,
    "h2d": _h2d,
    "synthetic": _synthetic,
}
