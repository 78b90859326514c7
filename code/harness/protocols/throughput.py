"""Protocols `throughput` and `loading`: a recipe end to end, or its loader alone.

Both are the steady state. The clock starts when the last warm-up batch is
complete and what was loaded ahead is drained, so that starting processes, loading the model and
filling the queues are not in the rate; they are `startup_s`. `model_load_s` of it is the model's
and the sink's: imports of their libraries, and the weights from the disk to the device. The clock
stops when the sink's file is complete, or for `loading` at the first batch after so many seconds.
No batch of a loader alone is used for anything.
"""

import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from harness import disturbance, sinks, telemetry
from harness.corpora import manifest as manifests
from harness.engines import loaders, pipeline
from harness.engines.inference import TimedInference, open_inference
from harness.engines.loader import Loader
from harness.engines.pipeline import DeviceStages
from harness.engines.positions import MIN_BURSTS, CyclicPositions, batches_needed, plan_batches
from harness.engines.writer import Writer, open_writer
from harness.processes import gc_disabled
from harness.protocols import fidelity, protocol
from harness.protocols.loop import PassResult, after, run_pass, steady
from harness.protocols.protocol import Measurement, Progress, no_progress
from harness.protocols.sink_check import check_sink
from harness.spec import Cell, Recipe
from wallclock.machine import usable_cores
from wallclock.recipe import ModelSpec
from wallclock.stages.decode import PixelArray

#: Batches of a loader alone, at least.
_MIN_LOADER_BATCHES = 8
#: Images of a stream that is effectively endless: minutes at any rate measured so far.
_UNLIMITED = 1_000_000
#: Batches whose spans are kept, beyond those that were loaded before the clock started.
_SPAN_BATCHES = 16


def throughput(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """One steady-state pass over the cell's images, repeated where they are too few for one.

    Samples: those of `PassResult`, and `wall`; `latency` only of a pass that is steady: behind a
    queue that was not drained, images waited for the model to load. Values:
    among others those of `sink_check`, of the file that the pass wrote, once the clock stands.
    """
    # Started before the loader: its own start must not compete with what is timed.
    with telemetry.recorded(cell.recipe.device) as sampler:
        measurement = _throughput(cell, work, progress, sampler)
    measurement.values["telemetry"] = sampler.values
    return measurement


def _throughput(
    cell: Cell, work: Path, progress: Progress, sampler: telemetry.Recording
) -> Measurement:
    recipe, model = cell.recipe, cell.model
    manifest = protocol.open_corpus(cell)
    values = protocol.set_conditions(cell, manifest, uses_torch=True)
    warm, count, positions = plan_batches(len(manifest.valid), recipe, batches_needed(cell))
    began = perf_counter_ns()
    # Workers first: a fork after CUDA has started would copy a broken context. The collector's last
    # run takes 0.1 s, in which a loader would fill its queues behind the warm-up: it comes before.
    with gc_disabled(), loaders.open_loader(manifest, recipe, model, positions) as loader:
        load_began = perf_counter_ns()
        stages = pipeline.device_stages(recipe, model, work)
        values["model_load_s"] = (perf_counter_ns() - load_began) / 1e9
        inference = _warm_up(cell, loader, stages, warm)
        values["startup_s"] = (perf_counter_ns() - began) / 1e9
        memory = GpuMemory(stages.device)
        with _opened_writer(recipe, stages) as writer:
            inference.restart(writer)
            memory.begin()
            progress(0)
            sampler.begin()
            result = run_pass(
                loader,
                after(count),
                progress,
                inference=inference,
                max_failures=int(cell.params.get("max_failures", _UNLIMITED)),
                span_batches=loader.prefetched + _SPAN_BATCHES,
            )
            sampler.end()
        peak_memory_mib = protocol.peak_memory_mib()
    if not result.images:
        raise protocol.all_failed(result.failures)
    failed = [*result.failures, *stages.dropped]
    values |= memory.values()
    values |= {
        "peak_memory_mib": peak_memory_mib,
        "embedded_on": stages.device,
        "clock_error_us": inference.clock_error_ns() / 1e3,
        "n_embedded": result.images,
        "n_batches": result.batches,
        "warmup_batches": warm,
        "steady": warm >= loader.prefetched,
        "weights_digest": stages.weights_digest,
        "limited_by": result.limited_by,
        "ran": {
            "engine": loader.engine,
            "workers": loader.workers,
            **result.labels,
            **stages.labels,
        },
    }
    if not values["steady"]:
        del result.samples["latency"]
    if stages.output is not None:
        timed = positions[warm : warm + result.batches]
        values |= check_sink(stages.output, timed, failed, manifest, recipe, model)
    keep = sorted(work.iterdir()) if cell.repeat == 0 else []
    failures = [*manifests.failure_rows(manifest.items), *failed]
    samples: dict[str, Sequence[int]] = dict(result.samples)
    samples["wall"] = [result.wall_ns]
    return Measurement(samples, values, failures, keep, result.spans)


def _warm_up(cell: Cell, loader: Loader, stages: DeviceStages, count: int) -> TimedInference:
    """Embed so many batches into a file that nobody reads.

    Returns the inference step, with the streams and the device's memory that they have used: the
    timed pass goes on with it.
    """
    recipe, dim = cell.recipe, cell.model.dim
    with tempfile.TemporaryDirectory() as folder:
        sink = sinks.make(recipe.sink, Path(folder), dim)
        to_sink = replace(stages, serialize=sink.write, finish=sink.close)
        with _opened_writer(recipe, to_sink) as writer:
            inference = open_inference(stages, recipe, writer)
            run_pass(
                loader, after(count), no_progress, inference=inference, max_failures=_UNLIMITED
            )
    return inference


def _opened_writer(recipe: Recipe, stages: DeviceStages) -> AbstractContextManager[Writer]:
    return open_writer(stages.serialize, stages.finish, in_thread=recipe.engine == "threads")


class GpuMemory:
    """Memory of the GPU from `begin` on; of any other device there are no values.

    Args:
        device: that the stages run on, as they say themselves: cuda, cpu, or null for a mock.
    """

    def __init__(self, device: str) -> None:
        self._on_gpu = device == "cuda"
        self._segments_before = 0

    def begin(self) -> None:
        """Count from now."""
        if self._on_gpu:
            import torch

            torch.cuda.reset_peak_memory_stats()
            self._segments_before = _segments()

    def values(self) -> dict[str, Any]:
        """Since `begin`, for the record.

        By torch: `peak_gpu_reserved_gib`, of its segments, and `peak_gpu_allocated_gib`, of the
        tensors in them. The driver counts more: the context, the code of kernels, other processes.
        `gpu_segments_allocated`: segments that the allocator got from the driver, which takes a
        millisecond each and waits for the device: 0 after a warm-up.
        """
        if not self._on_gpu:
            return {}
        import torch

        n_bytes = {
            "peak_gpu_reserved_gib": torch.cuda.max_memory_reserved(),
            "peak_gpu_allocated_gib": torch.cuda.max_memory_allocated(),
        }
        gib = {name: used / 2**30 for name, used in n_bytes.items()}
        return gib | {"gpu_segments_allocated": _segments() - self._segments_before}


def _segments() -> int:
    import torch

    # The key is absent until the allocator has done anything.
    return int(torch.cuda.memory_stats().get("segment.all.allocated", 0))


def loading(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """One loader in steady state for `params.seconds`, the images again and again.

    For `params.min_images` at least, and anew where others disturbed the pass. A batch counts once
    it is in host memory; with `params.finish` of `device`, normalized there.
    Samples: `batch`, from requesting one to having it, and `wall`. Values: `n_loaded`; in the first
    repeat, with `params.fidelity`, also how far each of the loader's own images is from Pillow's.
    """
    subset = str(cell.params.get("subset", "all"))
    manifest = protocol.open_corpus(cell, "jpeg" if subset == "all" else subset)
    values = protocol.set_conditions(cell, manifest, uses_torch=False)
    check = cell.params.get("fidelity") if cell.repeat == 0 else None
    n_checked = len(manifest.valid) if check else 0
    recipe, model = cell.recipe, cell.model
    variant = str(cell.params.get("variant", ""))
    # Positions go on counting: past the last image a loader starts over, in another epoch.
    positions = CyclicPositions(_UNLIMITED, recipe.batch_size, _UNLIMITED)
    began = perf_counter_ns()
    # Processes that the loader forks inherit the disabled collector.
    with gc_disabled(), loaders.open_loader(manifest, recipe, model, positions, variant) as opened:
        loader = opened
        if cell.params.get("finish") == "device":
            loader = loaders.OnDevice(opened, model.statistics, recipe.device)
        pixels = _drain(loader, model, n_checked)
        values["startup_s"] = (perf_counter_ns() - began) / 1e9
        result = _take_steady_pass(cell, loader, values, progress)
        values |= _described(loader, result.images)
    if "preprocess" in result.labels:  # third-party loaders have no such choice
        values["ran"] = {"preprocess": result.labels["preprocess"]}
    if check:
        values["fidelity"] = fidelity.compare_loader_output(
            pixels, manifest, model, recipe.device, int(check["vectors"]), recipe.preprocess
        )
    return Measurement({"batch": result.samples["wait"], "wall": [result.wall_ns]}, values)


def _take_steady_pass(
    cell: Cell, loader: Loader, values: dict[str, Any], progress: Progress
) -> PassResult:
    """The calmest of the passes that `harness.disturbance` asks for."""
    bursts = int(cell.params.get("bursts", MIN_BURSTS)) * loader.burst
    batches = -(-int(cell.params.get("min_images", 0)) // cell.recipe.batch_size)
    at_least = max(_MIN_LOADER_BATCHES, loader.prefetched, bursts, batches)
    until = steady(float(cell.params["seconds"]), at_least, loader.burst)

    def take_pass(readings: dict[str, Any]) -> PassResult:
        with protocol.competing(readings):
            return run_pass(loader, until, progress)

    progress(0)
    return disturbance.take_calmest(take_pass, values)


def _described(loader: Loader, n: int) -> dict[str, Any]:
    return {
        "library": loader.version,
        "settings": loader.settings,
        "n_loaded": n,
        "cores": usable_cores(),
        "peak_memory_mib": protocol.peak_memory_mib(),
    }


def _drain(loader: Loader, model: ModelSpec, n_checked: int) -> dict[int, PixelArray]:
    """Drain what was loaded ahead; return the loader's own first images by position."""
    images: dict[int, PixelArray] = {}
    drained = 0
    while drained < loader.prefetched or len(images) < n_checked:
        batch = next(loader)
        rows = [row for row, position in enumerate(batch.positions) if position < n_checked]
        if rows:
            pixels = loaders.to_pixels(batch.images[rows], model.statistics)
            for row, image in zip(rows, pixels, strict=True):
                images[batch.positions[row]] = np.array(image)
        drained += 1
    return images
