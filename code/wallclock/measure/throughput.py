"""Protocol `throughput`: a recipe end to end, in steady state.

The clock starts when the last warm-up batch is complete, so that starting processes, loading the
model and filling the queues are not in the rate; they are `startup_s`. It stops when the sink's
file is complete.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from wallclock.clock import gc_disabled
from wallclock.corpus import manifest as manifests
from wallclock.engines import pipeline
from wallclock.engines.inference import open_inference
from wallclock.engines.loaders import Loader, burst_of, open_loader, prefetched_batches
from wallclock.engines.pipeline import DeviceStages
from wallclock.engines.writer import open_writer
from wallclock.measure import monitor, protocol, telemetry
from wallclock.measure.loop import PassResult, after, run_pass, workers_since
from wallclock.measure.protocol import Measurement, Progress, no_progress
from wallclock.spec import Cell, Recipe
from wallclock.stages import sinks

#: Batches to measure, at least, beyond those that may be ready when the clock starts; and bursts,
#: because some workers are ahead of others by a batch or two at either end.
_MIN_BATCHES, _MIN_BURSTS = 12, 8
#: Batches whose spans are kept, beyond those that were loaded before the clock started.
_SPAN_BATCHES = 16


def throughput(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """One steady-state pass over the cell's images, repeated where they are too few for one.

    Samples: busy time of every stage call in whatever process it ran; `wait`, the main process
    waiting for a batch; `batch`, from requesting one to its vectors in the sink; `wall`.
    """
    import torch

    recipe, model, on_gpu = cell.recipe, cell.model, cell.recipe.device == "cuda"
    manifest = protocol.open_corpus(cell)
    values = protocol.set_conditions(cell, manifest, uses_torch=True)
    warm, count, positions = plan_batches(len(manifest.valid), recipe, _batches_needed(cell))
    began = perf_counter_ns()
    # Workers first: a fork after CUDA has started would copy a broken context.
    with open_loader(manifest, recipe, model, positions) as loader:
        stages = pipeline.device_stages(recipe, model, work)
        _warm_up(cell, loader, stages, warm)
        values["startup_s"] = (perf_counter_ns() - began) / 1e9
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        with telemetry.recorded(recipe.device) as recorded, gc_disabled():
            progress(0)
            result, loading = _timed_pass(cell, loader, stages, count, progress)
    if not result.images:
        raise protocol.all_failed(result.failures)
    if on_gpu:
        values["peak_gpu_mem_gib"] = torch.cuda.max_memory_allocated() / 2**30
    ran = {"engine": loader.engine, "workers": loader.workers}
    values |= {
        **loading,
        "n_embedded": result.images,
        "n_batches": result.batches,
        "warmup_batches": warm,
        "steady": warm >= loader.prefetched,
        "weights_digest": stages.weights_digest,
        "telemetry": recorded.as_values(),
        "peak_memory_mib": protocol.peak_memory_mib(),
        "limited_by": result.limited_by,
        "main_s": result.main_s,
        "ran": {**ran, **result.labels, **stages.labels},
    }
    keep = sorted(work.iterdir()) if cell.repeat == 0 else []
    failures = [*manifests.failure_rows(manifest.items), *result.failures]
    samples = {**result.samples, "wall": [result.wall_ns]}
    return Measurement(samples, values, failures, keep, result.spans)


def _timed_pass(
    cell: Cell, loader: Loader, stages: DeviceStages, count: int, progress: Progress
) -> tuple[PassResult, dict[str, Any]]:
    before = loader.stats()
    in_thread = cell.recipe.engine == "threads"
    with open_writer(stages.serialize, stages.finish, in_thread=in_thread) as writer:
        result = run_pass(
            loader,
            after(count),
            progress,
            inference=open_inference(stages, cell.recipe, writer),
            max_failures=int(cell.params.get("max_failures", 1_000_000)),
            span_batches=loader.prefetched + _SPAN_BATCHES,
            watch=monitor.current(),
        )
    stats = loader.stats()
    if "workers" in stats:
        stats["workers"] = workers_since(before["workers"], stats["workers"])
    return result, stats


def _warm_up(cell: Cell, loader: Loader, stages: DeviceStages, count: int) -> None:
    """Take the first `count` batches all the way, to a temporary sink."""
    in_thread = cell.recipe.engine == "threads"
    with tempfile.TemporaryDirectory() as folder:
        sink = sinks.make(cell.recipe.sink, Path(folder), cell.model.dim)
        with open_writer(sink.write, sink.close, in_thread=in_thread) as writer:
            inference = open_inference(stages, cell.recipe, writer)
            run_pass(loader, after(count), no_progress, inference=inference, max_failures=1_000_000)


def _batches_needed(cell: Cell) -> int:
    """How many batches a steady state takes, or `params.batches` if more; one where a forward pass
    on a CPU takes seconds.

    There the forward pass is the bottleneck by far, so that a full queue does not flatter the rate;
    the row says that it was not drained (`steady`).
    """
    recipe = cell.recipe
    if recipe.device == "cpu" and cell.model.weights != "none":
        return 1
    minimum = max(prefetched_batches(recipe) + _MIN_BATCHES, _MIN_BURSTS * recipe.workers)
    return max(minimum, int(cell.params.get("batches", 0)))


def plan_batches(n: int, recipe: Recipe, at_least: int) -> tuple[int, int, list[list[int]]]:
    """How many batches warm up, how many are measured, and the positions of all, and more.

    All `n` images are measured once, or again and again until `at_least` full batches are. What the
    workers prefetch while the model loads must be gone before the clock starts, or a run that waits
    for its loader would be credited with it; where fewer batches are measured than that, half as
    many warm up. Warm-up takes the same images from the start.

    Workers that began together finish together: their batches arrive in bursts. Images that repeat
    are therefore measured in complete bursts, and loading goes on behind the last measured batch as
    it did before the first: what was half done when the clock started is half done when it stops.
    """
    size, burst = recipe.batch_size, burst_of(recipe)
    total = max(n, -(-at_least // burst) * burst * size if at_least > 1 else size)
    measured = [list(range(start, min(start + size, total))) for start in range(0, total, size)]
    prefetched = prefetched_batches(recipe)
    warm = prefetched if len(measured) >= prefetched else max(1, len(measured) // 2)
    full = list(range(size))
    return warm, len(measured), [*([full] * warm), *measured, *([full] * prefetched)]


