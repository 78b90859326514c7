"""Protocols `contention`, `batch_transfer` and `step`: a job's costs, each apart from the others.

`contention`: loading alone and with other processes loading too. `batch_transfer`: the IPC of one
batch from a DataLoader worker to the main process. `step`: a batch from host memory to its vectors
in the sink, by batch size.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import Dataset
from torch.utils.flop_counter import FlopCounterMode

from harness.corpora.manifest import Manifest
from harness.engines import assemble
from harness.engines.dataloader import torch_loader
from harness.engines.dataset import ImageDataset
from harness.engines.pipeline import DeviceStages, device_stages, loaded_px
from harness.processes import gc_disabled, set_threads
from harness.profiler import StageProfiler
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, Progress
from harness.spec import MOST_TIMES, Cell
from wallclock.clock import DEVICE_STAGES, LOADING_STAGES
from wallclock.errors import UserError
from wallclock.loader.batch import Batch, Extras, Marks
from wallclock.machine import usable_cores

_WARM_UP_BATCHES = 8

#: One process's pass: images loaded, wall and CPU nanoseconds, each call of each stage.
_Pass: TypeAlias = tuple[int, int, int, dict[str, list[int]]]


def contention(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Load in 1, 2, 4 … processes up to the cores, and in twice the cores, the same images in each.

    No model, no transfer: each process reads, decodes, resizes, normalizes and assembles. One alone
    loads all images for `params.seconds` at least, again and again until they are complete, or a
    part of them within `MOST_TIMES` times that. Each of several then loads what that one did, from
    another image on: images differ in cost by more than processes slow each other down.

    Samples: each stage's calls of one process alone. Values, by the number of processes: `rates`,
    images per second of all together, and `cpu_s`, CPU seconds per image, which a competing process
    does not lengthen; `mean_bytes` of an image; `other_cores` that other programs kept busy.
    """
    manifest = protocol.open_corpus(cell)
    if not manifest.valid:
        raise UserError("the corpus holds no valid image to load")
    values = protocol.set_page_cache(cell, manifest)
    values["mean_bytes"] = float(np.mean([item.bytes for item in manifest.valid]))
    rates: dict[str, float] = {}
    cpu_s: dict[str, float] = {}
    samples: dict[str, list[int]] = {}
    n_batches = 0
    with protocol.competing(values):
        for n in process_counts(usable_cores()):
            tasks = [partial(_loading, cell, manifest, i / n, n_batches) for i in range(n)]
            passes = protocol.in_processes(tasks)
            images = sum(loaded for loaded, *_ in passes)
            rates[str(n)] = sum(loaded / wall * 1e9 for loaded, wall, *_ in passes)
            cpu_s[str(n)] = sum(cpu for _, _, cpu, _ in passes) / 1e9 / images
            if n == 1:
                values["n_embedded"] = images
                samples = passes[0][-1]
                n_batches = len(samples["assemble"])
            progress(images)
    return Measurement(samples, values | {"rates": rates, "cpu_s": cpu_s})


def process_counts(cores: int) -> list[int]:
    """1, 2, 4 … below the cores, the cores, and twice as many."""
    powers = (2**power for power in range(cores.bit_length()))
    below = [n for n in powers if n < cores]
    return [*below, cores, 2 * cores]


def _loading(cell: Cell, manifest: Manifest, offset: float, n_batches: int) -> Callable[[], _Pass]:
    """A pass over the images: of `n_batches`, from another one in each process; 0: see above."""
    set_threads(cell.recipe, uses_torch=False)
    dataset = ImageDataset(manifest, cell.recipe, cell.model)
    size, n = cell.recipe.batch_size, len(dataset)
    batches = [range(start, min(start + size, n)) for start in range(0, n, size)]
    order = [batches[number % len(batches)] for number in range(n_batches)] or batches
    first = int(offset * len(order))
    order = order[first:] + order[:first]
    seconds = float(cell.params["seconds"])
    samples: dict[str, list[int]] = {name: [] for name in LOADING_STAGES}
    dataset[order[0]]

    def load(positions: range) -> int:
        batch = dataset[positions]
        for marks in batch.extras.marks:
            durations = np.diff(marks.times, axis=1)
            for stage, column in zip(marks.stages, durations.T, strict=True):
                samples[stage] += column.tolist()
        return len(batch.ids)

    def run() -> _Pass:
        with gc_disabled():
            cpu, began = process_time_ns(), perf_counter_ns()
            images = 0
            for number in count():
                images += load(order[number % len(order)])
                elapsed_s = (perf_counter_ns() - began) / 1e9
                done = number + 1
                complete = done % len(order) == 0 and (n_batches or elapsed_s >= seconds)
                if complete or (not n_batches and elapsed_s >= MOST_TIMES * seconds):
                    break
            return images, perf_counter_ns() - began, process_time_ns() - cpu, samples

    return run


class _PrebuiltBatches(Dataset[Batch]):
    """Answers with a batch of zeros, and with the CPU time of its process and thread so far."""

    def __init__(self, size: int, px: int, *, uint8: bool) -> None:
        image = np.zeros((px, px, 3), np.uint8) if uint8 else np.zeros((3, px, px), np.float32)
        self._images = [image] * size
        self._ids = [str(number) for number in range(size)]

    def __getitems__(self, positions: Sequence[int]) -> Batch:
        used = [process_time_ns(), thread_time_ns()]
        images = assemble.stack_shared(self._images)
        return Batch(
            self._ids,
            range(len(self._ids)),
            images,
            extras=Extras([Marks("cpu", ("CPU time",), used)]),
        )


def batch_transfer(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Send `params.batches` batches of each of `params.batch_sizes` through one worker.

    The engine's floor: the worker assembles images that are ready in memory and sends them.
    Assembling is included because it happens in shared memory, whose pages are new for each batch.
    CPU time, not wall time: the two processes run concurrently and compete for cores.

    Samples, CPU nanoseconds of a batch, one mean for each size: `assemble-<size>`, the worker's
    thread that loads; `worker-<size>`, its other one, which sends; `main-<size>`.
    """
    set_threads(cell.recipe, uses_torch=True)
    samples: dict[str, list[int]] = {}
    n = int(cell.params["batches"])
    for size in map(int, cell.params["batch_sizes"]):
        single_worker = replace(cell.recipe, workers=1, engine="dataloader", batch_size=size)
        uint8 = cell.recipe.normalize_on == "device"
        dataset = _PrebuiltBatches(size, loaded_px(cell.recipe, cell.model), uint8=uint8)
        batches = iter(torch_loader(dataset, single_worker, [[0]] * (n + _WARM_UP_BATCHES)))
        for _ in range(_WARM_UP_BATCHES):
            batch = next(batches)
        with gc_disabled():
            before = batch.extras.marks[0].times[0]
            began = process_time_ns()
            for _ in range(n):
                batch = next(batches)
            spent = process_time_ns() - began
        in_process, in_thread = (batch.extras.marks[0].times[0] - before).tolist()
        samples[f"assemble-{size}"] = [in_thread // n]
        samples[f"worker-{size}"] = [max(0, in_process - in_thread) // n]
        samples[f"main-{size}"] = [spent // n]
        progress(n * size)
    return Measurement(samples, {"n_batches": n})


def step(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Noise through h2d, forward, d2h and serialize: `params.batches` times for each size.

    As the recipe's loader delivers it: uint8 where the device normalizes, pinned where it pins.
    Each of `params.batch_sizes` runs once before it is timed, and for at most `params.seconds`.
    Samples: `<stage>-<size>`, nanoseconds of each batch. Values: `other_cores` that other programs
    kept busy; with `params.count_flops`, `flops_per_image`.
    """
    threads = set_threads(cell.recipe, uses_torch=cell.model.weights != "none")
    stages = device_stages(cell.recipe, cell.model, work)
    embed = partial(_embed, stages)
    values: dict[str, Any] = dict(threads)
    with protocol.competing(values):
        samples = timed_by_size(cell, embed, partial(StageProfiler, stages.synchronize), progress)
    stages.finish()
    values["weights_digest"] = stages.weights_digest
    values["peak_memory_mib"] = protocol.peak_memory_mib()
    if cell.params.get("count_flops"):
        values["flops_per_image"] = _flops(stages, _noise(cell, 1))
    return Measurement(samples, values)


def _flops(stages: DeviceStages, images: Any) -> int:
    """Floating-point operations of a forward pass, a multiplication and an addition being two.

    Counted as torch dispatches them; its fused attention on a CPU would count as nothing.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        stages.forward(stages.h2d(images))
    return int(counter.get_total_flops())


def timed_by_size(
    cell: Cell,
    run: Callable[[Any, StageProfiler], None],
    new_profiler: Callable[[], StageProfiler],
    progress: Progress,
) -> dict[str, Sequence[int]]:
    """Call `run` with noise for each of `params.batch_sizes`, as `step` says; its samples."""
    samples: dict[str, Sequence[int]] = {}
    for size in map(int, cell.params["batch_sizes"]):
        images = _noise(cell, size)
        for _ in range(int(cell.params.get("warmup_batches", 1))):
            run(images, new_profiler())
        profiler = new_profiler()
        deadline = perf_counter_ns() + int(float(cell.params["seconds"]) * 1e9)
        with gc_disabled():
            for done in range(int(cell.params["batches"])):
                run(images, profiler)
                progress((done + 1) * size)
                if perf_counter_ns() > deadline:
                    break
        samples |= {f"{name}-{size}": taken for name, taken in profiler.samples().items()}
    return samples


def _noise(cell: Cell, size: int) -> Any:
    """A batch as the recipe's loader delivers it."""
    recipe, has_network = cell.recipe, cell.model.weights != "none"
    uint8 = recipe.normalize_on == "device" and has_network
    images = protocol.noise_batch(size, loaded_px(recipe, cell.model), uint8=uint8)
    return torch.from_numpy(images).pin_memory() if recipe.pins and has_network else images


def _embed(stages: DeviceStages, images: Any, profiler: StageProfiler) -> None:
    batch: Any = images
    for name in DEVICE_STAGES:
        function = getattr(stages, name)
        with profiler.stage(name):
            batch = function(batch)
    with profiler.stage("serialize"):
        stages.serialize([str(number) for number in range(len(images))], batch)
