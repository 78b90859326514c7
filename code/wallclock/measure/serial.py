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
from wallclock.engines import pipeline
from wallclock.engines import serial as engine
from wallclock.engines.pipeline import DeviceStages, LoadStages
from wallclock.measure import protocol
from wallclock.measure.protocol import Measurement, Progress, no_progress
from wallclock.spec import Cell
from wallclock.stages import sinks
from wallclock.thread_counts import set_threads


def serial(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """One serial pass over the cell's images.

    Samples: one a call of each stage, and `wall` for the pass. The first repeat keeps its vectors.
    """
    recipe, model = cell.recipe, cell.model
    manifest = protocol.open_corpus(cell)
    threads = set_threads(recipe, uses_torch=model.weights != "none")
    started = perf_counter()
    load = pipeline.load_stages(recipe, model, manifest.root)
    device = pipeline.device_stages(recipe, model, work)
    n_warm = recipe.batch_size * int(cell.params.get("warmup_batches", 1))
    warm_up(cell, load, device, manifest.valid[:n_warm])
    startup_s = perf_counter() - started
    files = protocol.set_page_cache(cell, manifest)
    measurement = _timed_pass(cell, manifest, load, device, progress)
    measurement.values |= {
        **threads,
        **files,
        "startup_s": startup_s,
        "weights_digest": device.weights_digest,
        "ran": {"engine": "serial", "workers": 0, **load.labels, **device.labels},
    }
    if cell.repeat == 0:
        measurement.keep = sorted(work.iterdir())
    return measurement


def floor(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """The same pass with null stages: the harness's own cost for as many images."""
    manifest = protocol.open_corpus(cell)
    measurement = _timed_pass(cell, manifest, *pipeline.null_stages(), progress)
    measurement.values |= manifest.size_stats()
    return measurement


def _timed_pass(
    cell: Cell, manifest: Manifest, load: LoadStages, device: DeviceStages, progress: Progress
) -> Measurement:
    """Run the serial engine once over the valid images, GC disabled, and keep every sample."""
    items = manifest.valid
    profiler, size = StageProfiler(device.synchronize), cell.recipe.batch_size
    max_failures = int(cell.params.get("max_failures", len(items)))
    progress(0)  # the first report pays for its imports outside the timer
    with gc_disabled():
        began = perf_counter_ns()
        outcome = engine.run(items, load, device, profiler, size, max_failures, progress)
        wall = perf_counter_ns() - began
    if outcome.n_embedded == 0:
        raise protocol.all_failed(outcome.failures)
    return Measurement(
        {**profiler.samples(), "wall": [wall]},
        {"n_embedded": outcome.n_embedded, "peak_memory_mib": protocol.peak_memory_mib()},
        [*manifests.failure_rows(manifest.items), *outcome.failures],
    )


def warm_up(cell: Cell, load: LoadStages, device: DeviceStages, items: Sequence[Item]) -> None:
    """Pay for lazy imports, first allocations and first-shape kernels outside the timer."""
    recipe, dim = cell.recipe, cell.model.dim
    with tempfile.TemporaryDirectory() as folder:
        sink = sinks.make(recipe.sink, Path(folder), dim)
        # A full row group: the parquet writer allocates its largest buffers at the first.
        rows = np.random.default_rng(0).random((sinks.ROW_GROUP, dim), dtype=np.float32)
        sink.write([""] * sinks.ROW_GROUP, rows)
        device = replace(device, serialize=sink.write, finish=sink.close)
        profiler = StageProfiler(device.synchronize)
        engine.run(items, load, device, profiler, recipe.batch_size, len(items), no_progress)
