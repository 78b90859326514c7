"""Protocol `step`: a batch from host memory to its vectors in the sink, by batch size."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns

from wallclock.clock import StageProfiler, gc_disabled
from wallclock.engines.pipeline import DeviceStages, Floats, device_stages
from wallclock.measure.protocol import Measurement, Progress, noise_batch, peak_memory_mib
from wallclock.spec import Cell
from wallclock.thread_counts import set_threads


def step(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Noise through h2d, forward, d2h and serialize: `params.batches` times for each size.

    Each of `params.batch_sizes` runs once before it is timed, and for at most `params.seconds`.
    Samples: `<stage>-<size>`, nanoseconds of each batch.
    """
    recipe, model = cell.recipe, cell.model
    threads = set_threads(recipe, uses_torch=model.weights != "none")
    stages = device_stages(recipe, model, work)
    samples: dict[str, list[int]] = {}
    for size in map(int, cell.params["batch_sizes"]):
        images = noise_batch(size, model.input_px, uint8=False)
        _embed(stages, images, StageProfiler(stages.synchronize))
        profiler = StageProfiler(stages.synchronize)
        deadline = perf_counter_ns() + int(float(cell.params["seconds"]) * 1e9)
        with gc_disabled():
            for done in range(int(cell.params["batches"])):
                _embed(stages, images, profiler)
                progress((done + 1) * size)
                if perf_counter_ns() > deadline:
                    break
        samples |= {f"{name}-{size}": list(taken) for name, taken in profiler.samples().items()}
    stages.finish()
    digest = stages.weights_digest
    values = {**threads, "weights_digest": digest, "peak_memory_mib": peak_memory_mib()}
    return Measurement(samples, values)


def _embed(stages: DeviceStages, images: Floats, profiler: StageProfiler) -> None:
    with profiler.stage("h2d"):
        on_device = stages.h2d(images)
    with profiler.stage("forward"):
        result = stages.forward(on_device)
    with profiler.stage("d2h"):
        vectors = stages.d2h(result)
    with profiler.stage("serialize"):
        stages.serialize([str(number) for number in range(len(images))], vectors)
