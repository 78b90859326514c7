"""Protocol `serial`: the stage profiler around every step of a serial pass; and its floor."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter, perf_counter_ns

import numpy as np

from wallclock.clock import StageProfiler, gc_disabled
from wallclock.corpus import manifest as manifests
from wallclock.corpus.manifest import Item, Manifest
from wallclock.engines import pipeline as pipelines
from wallclock.engines import serial as engine
from wallclock.engines.pipeline import Pipeline
from wallclock.errors import UserError, describe
from wallclock.measure.protocol import (
    Measurement,
    Progress,
    open_corpus,
    peak_memory_mib,
    set_page_cache,
)
from wallclock.spec import Cell, ModelSpec, Recipe
from wallclock.stages import sinks
from wallclock.thread_counts import set_threads


def serial(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """One serial pass over the cell's images.

    Samples: one a call of each stage, and `wall` for the pass. The vectors of the first repeat are kept.
    """
    recipe, model = cell.recipe, cell.model
    manifest = open_corpus(cell)
    items = manifest.valid
    threads = set_threads(recipe, uses_torch=model.weights != "none")
    started = perf_counter()
    pipeline = pipelines.build(recipe, model, manifest.root, work)
    warm_up(
        pipeline,
        recipe,
        model,
        items[: recipe.batch_size * int(cell.params.get("warmup_batches", 1))],
    )
    startup_s = perf_counter() - started
    cache = set_page_cache(cell, manifest, items)
    measurement = timed_pass(cell, manifest, pipeline, recipe.batch_size, progress)
    measurement.values |= {
        **threads,
        **manifest.size_stats(),
        "startup_s": startup_s,
        "page_cache": cache,
        "weights_digest": pipeline.weights_digest,
    }
    if cell.repeat == 0 and pipeline.output is not None:
        measurement.keep = sorted(work.iterdir())
    return measurement


def floor(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """The same pass with null stages: the harness's own cost for as many images."""
    recipe = cell.recipe
    manifest = open_corpus(cell)
    measurement = timed_pass(cell, manifest, pipelines.null(), recipe.batch_size, progress)
    measurement.values |= manifest.size_stats()
    return measurement


def timed_pass(
    cell: Cell, manifest: Manifest, pipeline: Pipeline, batch_size: int, progress: Progress
) -> Measurement:
    """Run the serial engine once over the sound images, collector off, and keep every sample."""
    items, failures = manifest.valid, manifests.failure_rows(manifest.items)
    profiler = StageProfiler(pipeline.synchronize)
    progress(0)  # the first report pays for its imports outside the timer
    with gc_disabled():
        began = perf_counter_ns()
        outcome = engine.run(
            items,
            pipeline,
            profiler,
            batch_size,
            int(cell.params.get("max_failures", len(items))),
            progress,
        )
        wall = perf_counter_ns() - began
    if outcome.n_embedded == 0:
        raise UserError(f"every image failed; the first, {describe(outcome.failures[0])}")
    return Measurement(
        samples={**profiler.samples(), "wall": [wall]},
        values={"n_embedded": outcome.n_embedded, "peak_memory_mib": peak_memory_mib()},
        failures=[*failures, *outcome.failures],
    )


def warm_up(pipeline: Pipeline, recipe: Recipe, model: ModelSpec, items: Sequence[Item]) -> None:
    """Pay for lazy imports, first allocations and first-shape kernels outside the timer."""
    with tempfile.TemporaryDirectory() as folder:
        sink = sinks.make(recipe.sink, Path(folder), model.dim)
        # A whole row group: the parquet writer makes its buffers, the largest of the pass, at the first.
        rows = np.random.default_rng(0).random((sinks.ROW_GROUP, model.dim), dtype=np.float32)
        sink.write([""] * sinks.ROW_GROUP, rows)
        rehearsal = replace(pipeline, serialize=sink.write, finish=sink.close)
        profiler = StageProfiler(pipeline.synchronize)
        engine.run(items, rehearsal, profiler, recipe.batch_size, len(items), lambda done: None)
