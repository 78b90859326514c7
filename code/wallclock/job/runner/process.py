"""Runs a job in this process, and says how long it will take. On a cluster: `cluster.py`."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import ceil

import numpy as np
from rich.console import Console

from wallclock import native
from wallclock.errors import UserError, describe
from wallclock.infer.network import Embedder, gain_of_bf16, open_announced, open_fastest
from wallclock.job.plan import Job, Plan
from wallclock.job.run import Progress, Run, Tally
from wallclock.job.settings import JobSettings
from wallclock.loader.batch import Batch, Failure
from wallclock.loader.opener import LoaderOptions, open_loader
from wallclock.loader.threads import IMAGE_STAGES, worker_count
from wallclock.machine import usable_cores
from wallclock.outside import printable
from wallclock.predict.intervals import RATE_ERROR
from wallclock.predict.pace import Pace
from wallclock.progress import CorpusProgress, bars, format_duration, format_rate, waiting
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
#: Images that check a converted network, and that bf16 is timed with; how much faster is offered.
_CHECKED, _TIMED, _WORTH = 8, 32, 1.1


class ThisProcess:
    """This process, in the place of a cluster's. `device`: cpu or cuda."""

    def __init__(self, settings: JobSettings, console: Console) -> None:
        self.device: str = settings.resolved_device()
        self._settings, self._console = settings, console

    def prepare(self, job: Job, plan: Plan) -> tuple[Job, str, Mapping[str, str]]:
        """The job with its runtime (`auto`: a first start decides); weights' digest; what runs."""
        say, recipe = partial(print_line, self._console), job.recipe
        sample = partial(sample_images, job, plan, _CHECKED)
        earns, begun = plan.size(*plan.missing) >= LEAST, bool(job.dataset.about)
        with waiting(self._console, f"opening {job.model.name}"):
            try:
                if self._settings.runtime == "auto" and not begun:
                    recipe, self._embedder = open_fastest(
                        recipe, job.model, say, earns=earns, sample=sample
                    )
                else:
                    self._embedder = open_announced(recipe, job.model, say, sample)
            except UserError as error:
                if not (begun and error.cure):
                    raise
                # OUT refuses another runtime or dtype.
                raise UserError(error.reason, "give another OUT") from error
        job = replace(job, recipe=recipe)
        return job, self._embedder.weights_digest, self._embedder.labels

    def run(self, job: Job, plan: Plan) -> tuple[Tally, float | None]:
        """Embed and commit; what was done, and the images per second that the estimate said."""
        measured = estimate(job, plan, self._embedder)
        if measured:
            vector = job.model.dim * np.dtype(np.float32).itemsize
            print_line(self._console, _planned(plan, measured, vector))
        n_processes = processes(self._settings.processes, job, measured)
        if n_processes > 1 and job.items.stream:
            raise UserError(f"processes={n_processes}: tables and packed tars need processes=1")
        if n_processes > 1 and not self._settings.processes:  # by default
            print_line(self._console, f"{n_processes} processes load the images")
        if measured and not self._settings.workers:
            job = replace(job, recipe=replace(job.recipe, workers=workers(measured)))
        run = Run(job, plan, n_processes)
        with run.loader() as loader, show_progress(self._console) as show:
            tally = run.run(loader, self._embedder, show)
        if measured and tally.limited_by == "forward":
            tally.faster = self._offer(job, plan, tally)
        return tally, measured.img_per_s() if measured else None

    def _offer(self, job: Job, plan: Plan, tally: Tally) -> str:
        """What bf16 would bring, measured on some of the images; empty: nothing."""
        images = sample_images(job, plan, _TIMED)
        gain, cosine = gain_of_bf16(self._embedder, job.recipe, job.model, images) or (1.0, 1.0)
        forward_s = tally.wall_s - sum(tally.wait_s.values())
        would_s = tally.wall_s - forward_s * (1 - 1 / gain)
        if would_s > tally.wall_s / _WORTH:
            return ""
        takes = f"{format_duration(would_s)} instead of {format_duration(tally.wall_s)}"
        similar = f"cosine {cosine:.5f} on {len(images)} of your images"
        return f"dtype=bf16 in a new OUT would take {takes} ({similar})"


def print_line(console: Console, line: str) -> None:
    """Print a line as this command's."""
    shown = printable(line, UserError.most)
    console.print(f"wallclock: {shown}", highlight=False, markup=False, soft_wrap=True)


def _planned(plan: Plan, measured: Pace, vector: int) -> str:
    """What a job will take; `vector`: bytes of one."""
    n = plan.size(*plan.missing)
    seconds = n / measured.img_per_s()
    ends = seconds / (1 + RATE_ERROR), seconds * (1 + RATE_ERROR)
    takes = " to ".join(dict.fromkeys(format_duration(max(end_s, 1)) for end_s in ends))
    size = f"{n * vector / 1e6:,.0f} MB of vectors"
    limit, other, alone_s = "loader", "model", measured.model_s
    if measured.model_limits:
        limit, other, alone_s = other, limit, measured.loading_s
    rate = f"{measured.img_per_s():,.0f} images/s; bottleneck: {limit}"
    if alone_s:
        rate += f" (the {other} alone: {format_rate(1 / alone_s)})"
    return f"{n:,} images to read: {takes} at about {rate}; {size}"


@contextmanager
def show_progress(console: Console) -> Iterator[Progress]:
    """A function that shows the job's progress while the block runs."""
    with bars(console) as progress_bars:
        progress = CorpusProgress(progress_bars)
        yield lambda done, total, limit: progress(done, total, "embedding", limit)


# --- what a job costs here, from a sample of its own images ---------------------------------------


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
    model_s, cores = _per_image(forward, recipe.batch_size), usable_cores()
    model_cores = cores if embedder.device == "cpu" else 0
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


def processes(given: int, job: Job, measured: Pace | None) -> int:
    """How many processes share a job's threads; 0 given: as many as the rate needs, on a GPU one.

    As many as keep each process's interpreter lock free for half of the time at the expected rate:
    seconds of an image under the lock × images per second / 0.5.
    """
    # With CUDA started, a fork would copy a context.
    if given or measured is None or job.recipe.device != "cpu" or sys.platform != "linux":
        return given or 1
    load_s = measured.load_s
    locked_s = _LOCKED_S if native.find() else _LOCKED_IN_PYTHON_S
    locked_share = min(load_s, locked_s + _LOCKED_SHARE * load_s) * measured.img_per_s()
    return max(1, min(worker_count(job.recipe), ceil(locked_share / _MOST_LOCKED)))


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
