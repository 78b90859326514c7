"""Protocol `step`: how long a batch takes from the host's memory to its vectors in the sink, by its size."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns

import numpy as np

from wallclock.clock import StageProfiler, gc_disabled
from wallclock.engines import pipeline as pipelines
from wallclock.engines.pipeline import Floats, Pipeline
from wallclock.measure.protocol import Measurement, Progress, peak_memory_mib
from wallclock.spec import Cell
from wallclock.thread_counts import set_threads


def step(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Noise through h2d, forward, d2h and serialize: `params.batches` times for each of `params.batch_sizes`.

    Each size runs once before it is timed. Samples: `<stage>-<size>`, nanoseconds of each batch.
    """
    recipe, model = cell.recipe, cell.model
    threads = set_threads(recipe, uses_torch=model.weights != "none")
    pipeline = pipelines.build(recipe, model, work, work)
    source = np.random.default_rng(0)
    samples: dict[str, list[int]] = {}
    for size in cell.params["batch_sizes"]:
        shape = (int(size), 3, model.input_px, model.input_px)
        images = source.standard_normal(shape, dtype=np.float32)
        _embed(pipeline, images, StageProfiler(pipeline.synchronize))
        profiler = StageProfiler(pipeline.synchronize)
        until = perf_counter_ns() + int(float(cell.params["seconds"]) * 1e9)
        with gc_disabled():
            for done in range(int(cell.params["batches"])):
                _embed(pipeline, images, profiler)
                progress((done + 1) * int(size))
                if perf_counter_ns() > until:
                    break
        samples |= {f"{name}-{size}": list(found) for name, found in profiler.samples().items()}
    pipeline.finish()
    values = {
        **threads,
        "weights_digest": pipeline.weights_digest,
        "peak_memory_mib": peak_memory_mib(),
    }
    return Measurement(samples, values)


def _embed(pipeline: Pipeline, images: Floats, profiler: StageProfiler) -> None:
    with profiler.stage("h2d"):
        on_device = pipeline.h2d(images)
    with profiler.stage("forward"):
        result = pipeline.forward(on_device)
    with profiler.stage("d2h"):
        vectors = pipeline.d2h(result)
    with profiler.stage("serialize"):
        pipeline.serialize([str(number) for number in range(len(images))], vectors)
