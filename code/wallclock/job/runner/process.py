"""Runs a job in this process. On a cluster: `cluster.py`."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
from rich.console import Console

from wallclock.errors import UserError
from wallclock.infer.runtime import open_announced, open_fastest
from wallclock.job import estimate
from wallclock.job.plan import Job, Plan
from wallclock.job.run import Progress, Run, Tally
from wallclock.job.settings import JobSettings
from wallclock.loader.threads import worker_count
from wallclock.outside import printable
from wallclock.predict.intervals import RATE_ERROR
from wallclock.predict.pace import Pace
from wallclock.progress import CorpusProgress, bars, format_duration, format_rate, waiting

#: Images that check a converted network.
_CHECKED = 8


class ThisProcess:
    """This process, in the place of a cluster's. `device`: cpu or cuda."""

    def __init__(self, settings: JobSettings, console: Console) -> None:
        self.device: str = settings.resolved_device()
        self._settings, self._console = settings, console

    def prepare(self, job: Job, plan: Plan) -> tuple[Job, str, Mapping[str, str]]:
        """The job with its runtime (`auto`: a first start decides); weights' digest; what runs."""
        say, recipe = partial(print_line, self._console), job.recipe
        sample = partial(estimate.sample_images, job, plan, _CHECKED)
        earns, begun = plan.size(*plan.missing) >= estimate.LEAST, bool(job.dataset.about)
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
        measured = estimate.estimate(job, plan, self._embedder)
        if measured:
            vector = job.model.dim * np.dtype(np.float32).itemsize
            print_line(self._console, _planned(plan, measured, vector))
        processes = processes_for(self._settings.processes, job, measured)
        if processes > 1 and job.items.stream:
            raise UserError(f"processes={processes}: tables and packed tars need processes=1")
        if processes > 1 and not self._settings.processes:  # which nobody asked for
            print_line(self._console, f"{processes} processes load the images")
        if measured and not self._settings.workers:
            job = replace(job, recipe=replace(job.recipe, workers=estimate.workers(measured)))
        run = Run(job, plan, processes)
        with run.loader() as loader, show_progress(self._console) as show:
            tally = run.run(loader, self._embedder, show)
        return tally, measured.img_per_s() if measured else None


def processes_for(given: int, job: Job, measured: Pace | None) -> int:
    """How many processes load; 0 given: as many as the rate needs, on a GPU one."""
    # With CUDA started, a fork would copy a context.
    if given or measured is None or job.recipe.device != "cpu" or sys.platform != "linux":
        return given or 1
    return estimate.loading_processes(measured, worker_count(job.recipe))


def print_line(console: Console, line: str) -> None:
    """Print a line as this command's."""
    shown = printable(line, UserError.most)
    console.print(f"wallclock: {shown}", highlight=False, markup=False, soft_wrap=True)


def _planned(plan: Plan, measured: Pace, vector: int) -> str:
    """What a job will take; `vector`: bytes of one."""
    n = plan.size(*plan.missing)
    seconds = n / measured.img_per_s()
    ends = seconds / (1 + RATE_ERROR), seconds * (1 + RATE_ERROR)
    durations = [format_duration(max(duration_s, 1)) for duration_s in ends]
    takes = " to ".join(dict.fromkeys(durations))
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

        def show(done: int, total: int, limited_by: str) -> None:
            progress.limited_by = limited_by
            progress(done, total, "embedding")

        yield show
