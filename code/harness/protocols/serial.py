"""Protocols `serial` and `floor`: the stage profiler around every step of a pass.

`floor`: the same with stages that do nothing, what the harness itself costs.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter, perf_counter_ns

import numpy as np

from harness import sinks, telemetry
from harness.corpora import manifest as manifests
from harness.corpora.manifest import Item, Manifest
from harness.engines import pipeline
from harness.engines import serial as engine
from harness.engines.pipeline import DeviceStages, LoadStages
from harness.processes import gc_disabled, set_threads
from harness.profiler import StageProfiler
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, Progress, no_progress
from harness.spec import Cell


def serial(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """One serial pass over the cell's images.

    Samples: one a call of each stage, and `wall` for the pass. The first repeat keeps its vectors.
    """
    recipe, model = cell.recipe, cell.model
    manifest = protocol.open_corpus(cell)
    threads = set_threads(recipe, uses_torch=model.weights != "none")
    started = perf_counter()
    load = pipeline.load_stages(recipe, model, manifest)
    device = pipeline.device_stages(recipe, model, work)
    n_warm = recipe.batch_size * int(cell.params.get("warmup_batches", 1))
    warm_up(cell, load, device, manifest.valid[:n_warm])
    startup_s = perf_counter() - started
    files = protocol.set_page_cache(cell, manifest)
    with telemetry.of_gpu(recipe.device) as readings:
        measurement = _timed_pass(cell, manifest, load, device, progress)
    measurement.values |= threads | files | readings
    measurement.values |= {
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
    profiler = StageProfiler(device.synchronize)
    size = cell.recipe.batch_size
    max_failures = int(cell.params.get("max_failures", len(items)))
    progress(0)  # the first report pays for its imports outside the timer
    with gc_disabled():
        began = perf_counter_ns()
        outcome = engine.run(items, load, device, profiler, size, max_failures, progress)
        wall = perf_counter_ns() - began
    if outcome.n_embedded == 0:
        raise protocol.all_failed(outcome.failures)
    samples: dict[str, Sequence[int]] = dict(profiler.samples())
    samples["wall"] = [wall]
    values = {"n_embedded": outcome.n_embedded, "peak_memory_mib": protocol.peak_memory_mib()}
    failures = [*manifests.failure_rows(manifest.items), *outcome.failures, *device.dropped]
    return Measurement(samples, values, failures)


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
