"""Protocol `throughput`: a recipe end to end through an engine that overlaps its stages, in steady state.

The clock starts when the last warm-up batch is through, so that starting processes, loading the
model and filling the queues are not in the rate; they are `startup_s`. It stops when the sink's
file is whole.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Protocol

from wallclock.clock import gc_disabled
from wallclock.corpus import manifest as manifests
from wallclock.corpus.manifest import Item, Manifest
from wallclock.engines import embedder as embedders
from wallclock.engines import pipeline as pipelines
from wallclock.engines.dataloader import IMAGE_STAGES, PREFETCH, Batch, batches, ready
from wallclock.engines.embedder import Embedder
from wallclock.engines.pipeline import Pipeline
from wallclock.engines.ring import buffers_for
from wallclock.engines.threads import loading, workers_of
from wallclock.errors import UserError, describe
from wallclock.measure import monitor, telemetry, threaded
from wallclock.measure.protocol import (
    Measurement,
    Pass,
    Progress,
    open_corpus,
    peak_memory_mib,
    set_page_cache,
)
from wallclock.spec import Cell, ModelSpec, Recipe
from wallclock.stages import sinks
from wallclock.thread_counts import set_threads

#: Batches to measure, at least, beyond those that the workers may have ready when the clock starts; and bursts,
#: because some workers are ahead of others by a batch or two at either end.
_MIN_BATCHES, _MIN_BURSTS = 12, 8


def throughput(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """One steady-state pass over the cell's images, repeated where they are too few for one.

    Samples: busy time of every stage call in whatever process it ran; `wait`, the main process
    waiting for a batch; `batch`, one batch from asking for it to its vectors in the sink; `wall`.
    """
    recipe, model = cell.recipe, cell.model
    manifest = open_corpus(cell)
    items = manifest.valid
    threads = set_threads(recipe, uses_torch=True)
    cache = set_page_cache(cell, manifest, items)
    warm, count, positions = plan_batches(
        len(items), recipe, at_least=_batches_needed(cell, recipe, model)
    )
    began = perf_counter_ns()
    # Workers first: a fork after CUDA has started would copy a broken context.
    with _loading(items, manifest, recipe, model, positions) as loaded:
        pipeline = pipelines.build(recipe, model, manifest.root, work)
        loaded.warm_up(warm, pipeline)
        startup_s = (perf_counter_ns() - began) / 1e9
        gpu = _GpuMemory(recipe.device)
        with telemetry.recorded(recipe.device) as recorded, gc_disabled():
            progress(0)
            done = loaded.measure(
                pipeline, count, int(cell.params.get("max_failures", 1_000_000)), progress
            )
    if not done.embedded:
        raise UserError(f"every image failed; the first, {describe(done.failures[0])}")
    values: dict[str, Any] = {
        **threads,
        **manifest.size_stats(),
        "page_cache": cache,
        "startup_s": startup_s,
    }
    values |= {
        "n_embedded": done.embedded,
        "n_unique": len(items),
        "n_batches": done.batches,
        "warmup_batches": warm,
    }
    values["steady"] = warm >= _prefetched(recipe)
    values |= {
        "weights_digest": pipeline.weights_digest,
        "telemetry": recorded.as_values(),
        **gpu.peak(),
    }
    values |= {"peak_memory_mib": peak_memory_mib(), **done.values}
    keep = sorted(work.iterdir()) if cell.repeat == 0 else []
    failures = [*manifests.failure_rows(manifest.items), *done.failures]
    return Measurement({**done.samples, "wall": [done.wall_ns]}, values, failures, keep, done.spans)


class _Loaded(Protocol):
    """An engine that has begun to load."""

    def warm_up(self, count: int, pipeline: Pipeline) -> None:
        """Take the first `count` batches all the way, to a sink that is thrown away."""

    def measure(
        self, pipeline: Pipeline, count: int, max_failures: int, progress: Progress
    ) -> Pass:
        """Take the next `count` batches, until the sink's file is whole; what comes after them is left."""


@contextmanager
def _loading(
    items: Sequence[Item],
    manifest: Manifest,
    recipe: Recipe,
    model: ModelSpec,
    positions: Sequence[Sequence[int]],
) -> Iterator[_Loaded]:
    if recipe.engine == "threads":
        with loading(
            items, manifest.root, recipe, model.input_px, positions, model.statistics
        ) as loader:
            yield threaded.Threaded(loader, recipe, model)
    else:
        yield _Processes(
            batches(items, manifest.root, recipe, model.input_px, positions, model.statistics),
            recipe,
            model,
        )


def _prefetched(recipe: Recipe) -> int:
    """Batches that may have been loaded before the clock starts."""
    if recipe.engine == "threads":
        return buffers_for(workers_of(recipe), recipe.batch_size)
    return recipe.workers * PREFETCH + 1


def _batches_needed(cell: Cell, recipe: Recipe, model: ModelSpec) -> int:
    """How many batches a steady state takes, or `params.batches` if more; one where a network on a CPU takes hours.

    There the forward pass is the bottleneck by far, so that a full queue does not flatter the rate;
    the row says that it was not drained (`steady`).
    """
    slow = recipe.device == "cpu" and model.weights != "none"
    if slow:
        return 1
    steady = max(_prefetched(recipe) + _MIN_BATCHES, _MIN_BURSTS * recipe.workers)
    return max(steady, int(cell.params.get("batches", 0)))


def plan_batches(n: int, recipe: Recipe, at_least: int) -> tuple[int, int, list[list[int]]]:
    """How many batches warm up, how many are measured, and the positions of every batch, in that order and more.

    All `n` images are measured once, or over and over until `at_least` full batches are. What the
    workers prefetch while the model loads must be gone before the clock starts, or a run that waits
    for its loader would be credited with it; where fewer batches are measured than that, half as
    many warm up. Warm-up takes the same images from the start.

    Workers that began together finish together: batches come in bursts of as many. Images that are taken
    over and over are therefore measured in whole bursts, and loading goes on behind the last measured
    batch as it did before the first: what was half done when the clock started is half done when it stops.
    """
    size, burst = recipe.batch_size, max(recipe.workers, 1)
    total = max(n, -(-at_least // burst) * burst * size if at_least > 1 else size)
    measured = [list(range(start, min(start + size, total))) for start in range(0, total, size)]
    prefetched = _prefetched(recipe)
    warm = prefetched if len(measured) >= prefetched else max(1, len(measured) // 2)
    full = list(range(size))
    return warm, len(measured), [*([full] * warm), *measured, *([full] * prefetched)]


class _Processes:
    """Engine `dataloader`."""

    def __init__(self, loaded: Iterator[Batch], recipe: Recipe, model: ModelSpec) -> None:
        self._loaded, self._recipe, self._model = loaded, recipe, model

    def warm_up(self, count: int, pipeline: Pipeline) -> None:
        with tempfile.TemporaryDirectory() as folder:
            sink = sinks.make(self._recipe.sink, Path(folder), self._model.dim)
            embed = embedders.make(replace(pipeline, serialize=sink.write), self._recipe.device)
            for _ in range(count):
                batch = next(self._loaded)
                if batch.ids:
                    embed(batch.ids, batch.images)
            sink.close()

    def measure(
        self, pipeline: Pipeline, count: int, max_failures: int, progress: Progress
    ) -> Pass:
        embed = embedders.make(pipeline, self._recipe.device)
        span_batches = self._recipe.workers * PREFETCH + 16
        start = perf_counter_ns()
        done = _measure(self._loaded, count, embed, max_failures, progress, start, span_batches)
        pipeline.finish()
        done.wall_ns = perf_counter_ns() - start
        return done


def _measure(
    loaded: Iterator[Batch],
    count: int,
    embed: Embedder,
    limit: int,
    progress: Progress,
    start: int,
    span_batches: int,
) -> Pass:
    done = Pass()
    watch = monitor.current()
    if watch is not None:
        watch.begin()
    for _ in range(count):
        asked = perf_counter_ns()
        batch = next(loaded)
        got = perf_counter_ns()
        spans = embed(batch.ids, batch.images) if batch.ids else []
        finished = perf_counter_ns()
        done.samples["batch"].append(finished - asked)
        done.samples["wait"].append(got - asked)
        wait = ("wait", asked, got - asked)
        _add(done, batch, embed.lane, [wait, *spans], start, keep_spans=done.batches < span_batches)
        done.failures += batch.failures
        done.embedded += len(batch.ids)
        done.batches += 1
        if len(done.failures) > limit:
            raise UserError(
                f"more than max_failures={limit} images failed; the last, {describe(done.failures[-1])}"
            )
        if watch is not None:
            watch.update(
                done.samples, done.embedded, done.batches, len(done.failures), lambda: ready(loaded)
            )
        progress(done.embedded)
    if watch is not None:
        watch.update(
            done.samples, done.embedded, done.batches, len(done.failures), lambda: 0, final=True
        )
    return done


def _add(
    done: Pass,
    batch: Batch,
    lane: str,
    spans: Sequence[embedders.Span],
    start: int,
    *,
    keep_spans: bool,
) -> None:
    """Add a batch's durations, and its spans relative to the pass's start while they are wanted."""
    worker = "main" if batch.worker < 0 else f"worker {batch.worker}"
    assembled, end = batch.assembled
    in_worker = [("assemble", assembled, end - assembled)]
    for marks in batch.marks.tolist():
        in_worker += [
            (name, marks[i], marks[i + 1] - marks[i]) for i, name in enumerate(IMAGE_STAGES)
        ]
    for name, _, duration in [*in_worker, *spans]:
        if name != "wait":
            done.samples[name].append(duration)
    if keep_spans:
        placed = [(worker, *span) for span in in_worker] + [
            (_lane(span[0], lane), *span) for span in spans
        ]
        done.spans += [
            (where, name, done.batches, at - start, took) for where, name, at, took in placed
        ]


def _lane(stage: str, device_lane: str) -> str:
    return device_lane if stage in ("h2d", "forward", "d2h") else "main"


class _GpuMemory:
    """Peak of what torch allocated on the GPU during the pass."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device == "cuda"
        if self._on_gpu:
            import torch

            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> dict[str, float]:
        """`peak_gpu_mem_gib`, or nothing on a CPU."""
        if not self._on_gpu:
            return {}
        import torch

        return {"peak_gpu_mem_gib": torch.cuda.max_memory_allocated() / 2**30}
