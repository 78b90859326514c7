"""How long a job will take, from a sample of its own images on this machine."""

import time
from collections.abc import Iterator
from dataclasses import replace
from math import ceil

import numpy as np

from wallclock import native
from wallclock.errors import UserError, describe
from wallclock.infer.network import Embedder
from wallclock.job.plan import Job, Plan
from wallclock.loader.batch import Batch, Failure
from wallclock.loader.opener import LoaderOptions, open_loader
from wallclock.loader.threads import IMAGE_STAGES, worker_count
from wallclock.machine import usable_cores
from wallclock.predict.pace import Pace
from wallclock.stages.pixels import PixelArray

#: A smaller job is not estimated.
LEAST = 1000
#: Images that warm up libraries.
_WARMUP = 32
#: Then a sample of as many at least, and of so many at most, until so many seconds are over.
_MOST = 256
_SECONDS = 0.1
_BATCH = 8
#: Seconds for which an image holds its process's interpreter lock, at most: this, with the native
#: module and without, and a share of its loading.
_LOCKED_S, _LOCKED_IN_PYTHON_S, _LOCKED_SHARE = 9e-6, 70e-6, 0.02
#: The share of the time for which a process's interpreter lock may be held before its threads wait.
_MOST_LOCKED = 0.5


def estimate(job: Job, plan: Plan, embedder: Embedder) -> Pace | None:
    """The job's costs here, by one thread, so that no other competes with what a stage costs.

    None for a small job, a stream, or a sample that cannot be read. Raises UserError: the reader
    gave up, as the job's would.
    """
    recipe, model = job.recipe, job.model
    if plan.size(*plan.missing) < LEAST or job.items.stream:
        return None
    batches = _sample(plan, recipe.batch_size)
    single = replace(recipe, workers=1)
    options = LoaderOptions.of(model.input_px, single, limits=job.limits, hashes=True)
    with open_loader(job.items, batches, options) as loader:
        times, forward, failures = _measure(loader, embedder)
    if given_up := [failure for failure in failures if failure.get("unreached") == "all"]:
        left = f"{plan.size(*plan.missing):,} not reached: run again"
        raise UserError(f"nothing was reached, as {describe(given_up[0])}; {left}")
    if not forward:
        return None
    load_s = sum(map(sum, times.values())) / len(times["read"]) / 1e9
    cores = usable_cores()
    model_cores = cores if embedder.device == "cpu" else 0
    model_s = _per_image(forward, recipe.batch_size)
    return Pace(load_s, model_s, cores, worker_count(recipe), model_cores)


def sample_images(job: Job, plan: Plan, n: int) -> PixelArray:
    """Up to n images of the job, uint8 (n, h, w, 3): fewer where some cannot be read."""
    options = LoaderOptions.of(job.model.input_px, job.recipe, limits=job.limits)
    images = [np.empty((0, *options.loading.geometry.canvas, 3), np.uint8)]
    if not job.items.stream:
        with open_loader(job.items, _sample(plan, job.recipe.batch_size), options) as loader:
            for batch in loader:
                images.append(np.array(batch.images[: len(batch.ids)]))
                if sum(map(len, images)) >= n:
                    break
    return np.concatenate(images)[:n]


def workers(measured: Pace) -> int:
    """How many threads load: twice what the rate needs, so that the model has the rest; 0: all."""
    if not measured.model_cores:
        return 0
    needed, most = ceil(2 * measured.load_s * measured.img_per_s()), measured.workers
    return min(most, max(needed, most // 2, 1))


def loading_processes(measured: Pace, workers: int) -> int:
    """How many processes share a job's threads: 1 to `workers`.

    As many as keep each process's interpreter lock free for half of the time at the expected rate:
    seconds of an image under the lock × images per second / 0.5. Slow models, slow storage and
    large images lower the rate, so that one process is enough.
    """
    load_s = measured.load_s
    locked_s = _LOCKED_S if native.find() else _LOCKED_IN_PYTHON_S
    locked_share = min(load_s, locked_s + _LOCKED_SHARE * load_s) * measured.img_per_s()
    return max(1, min(workers, ceil(locked_share / _MOST_LOCKED)))


def _per_image(forward: list[tuple[int, float]], batch_size: int) -> float:
    """Seconds of an image in a batch, from those of passes over 1 image and over n."""
    (_, one_s), (n, seconds) = forward
    if n == 1:
        return seconds
    each_s = min(max((seconds - one_s) / (n - 1), 0.0), seconds / n)
    return each_s + (seconds - n * each_s) / batch_size


def _sample(plan: Plan, batch_size: int) -> list[list[int]]:
    """Images from everywhere in the plan, in batches, in an order without a direction."""
    positions = []
    for at in np.linspace(0, len(plan) * batch_size - 1, _WARMUP + _MOST).astype(int).tolist():
        batch = plan[at // batch_size]
        positions.append(batch[at % batch_size % len(batch)])
    shuffled = np.random.default_rng(0).permutation(positions).tolist()
    return [shuffled[at : at + _BATCH] for at in range(0, len(shuffled), _BATCH)]


def _measure(
    loader: Iterator[Batch], embedder: Embedder
) -> tuple[dict[str, list[int]], list[tuple[int, float]], list[Failure]]:
    """Nanoseconds of each image by stage; seconds of a forward pass over n images; failures."""
    times: dict[str, list[int]] = {name: [] for name in IMAGE_STAGES}
    forward: list[tuple[int, float]] = []
    loaded, began, failures = 0, time.perf_counter(), list[Failure]()
    for batch in loader:
        loaded += _BATCH
        failures += batch.failures
        if loaded <= _WARMUP:
            began = time.perf_counter()
            continue
        for marks in batch.extras.marks:
            for name, spent in zip(IMAGE_STAGES, np.diff(marks.times).T, strict=True):
                times[name] += spent.tolist()
        if len(batch.ids) and len(forward) < 2:
            for n in (1, len(batch.ids)):
                embedder.embed(batch.images[:n])
                start = time.perf_counter()
                embedder.embed(batch.images[:n])
                forward.append((n, time.perf_counter() - start))
        if loaded >= 2 * _WARMUP and time.perf_counter() - began > _SECONDS:
            break
    return times, forward, failures
