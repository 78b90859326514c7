"""`wallclock trace --try`: measures `open_images` on the program's own images.

What is measured is the loader alone, in this process, with the files in memory. The gain of
the program then follows from the pipeline model with the measured cost of an image in the place of
the predicted one; the program itself is neither changed nor run again.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import ceil, inf
from statistics import median
from typing import Any

from wallclock.errors import UserError
from wallclock.predict.advice import FIXES, Job, gain_of, workers_for
from wallclock.predict.pictures import Target
from wallclock.trace.fixes import batch_of, errors_of, say_gain
from wallclock.trace.record import Trace
from wallclock.trace.shares import Shares
from wallclock.trace.words import count, digits, percent
from wallclock.trace.work import job_of

#: Files at most.
_MOST_FILES = 128
#: Below this part of the cores' time, the loader did not have all of them.
_BUSY = 0.8
#: Seconds of a pass, of which threads take a few milliseconds to start, and of all passes at least.
_PASS_S, _ALL_S = 0.7, 2.0
_LEAST_PASSES = 3

_LOADER = FIXES["open_images"]


@dataclass(frozen=True)
class Measured:
    """Passes over `n_files` files: `rates`, images per second, the slowest first.

    `busy_cores`: how many cores they used. `failures`: files that could not be loaded.
    """

    rates: Sequence[float]
    busy_cores: float
    n_files: int
    failures: int


@dataclass(frozen=True)
class Trial:
    """What `--try` has to say: of a measurement and the gain that follows, or why there is none.

    `numbers`: the same as keys of the JSON; docs/trace.md explains them.
    """

    sentences: Sequence[str]
    numbers: Mapping[str, Any]


def try_loader(trace: Trace) -> Trial:
    """Measure `open_images` on the program's files as the report proposes it."""
    try:
        shares = Shares(trace)
        job, files, options = _what_to_try(shares)
        return conclude(shares, job, measure_files(files, options))
    except UserError as error:
        return Trial([str(error)], {"reason": str(error)})


def _what_to_try(shares: Shares) -> tuple[Job, Sequence[str], Mapping[str, Any]]:
    """The program, files to load, and how. Raises UserError: there is nothing to try."""
    job = job_of(shares)
    if job is None or job.img_per_s() == inf:
        raise UserError("Nothing to try: the program loaded no image that the trace counts.")
    if job.target is None:
        raise UserError(
            "Nothing to try: the program has no size to which it resizes most of its images."
            " Resize them in a function that is counted."
        )
    files = [path for path in shares.trace.paths if os.path.isfile(path)][:_MOST_FILES]
    if not files:
        raise UserError(
            "Nothing to try: no file of the program's images is known here. They came from the"
            " network, an archive or a reader that is not seen: trace a run on a folder of them."
        )
    if not _LOADER.applies(job):
        raise UserError("Nothing to try: the trace has no images that open_images would load.")
    workers = workers_for(job.cores, waits=job.waits)
    return job, files, {**geometry_of(job.target), "batch": batch_of(job), "workers": workers}


def geometry_of(target: Target) -> Mapping[str, Any]:
    """The size of the images, as options of `open_images`; `augment` as an `Augment`'s.

    Of crops only the crop: the program's other transforms are counted as its own.
    """
    if target.mode == "crop":
        return {"size": target.px, "augment": {"flip": 0.0, "jitter": 0.0}}
    if target.mode == "squash":
        return {"size": target.size[::-1]}
    return {"preprocess": f"{target.mode}:{target.px},crop:{target.px}x{target.px}"}


def conclude(shares: Shares, job: Job, measured: Measured) -> Trial:
    """What follows from the measurement for the program, beside what was predicted."""
    slowest, middle, fastest = measured.rates[0], median(measured.rates), measured.rates[-1]
    changed = [with_loader(job, job.cores / rate) for rate in (slowest, middle, fastest)]
    errors = errors_of(shares, job)
    gains = {
        "measured_gain": gain_of(job, changed, errors),
        "predicted_gain": _LOADER.gain(job, errors),
    }
    use, n_passes = measured.busy_cores / job.cores, len(measured.rates)
    said = [say_gain(gain) for gain in gains.values()]
    busy = f", {percent(use)} of them used" if use < _BUSY else ""
    lost = count(measured.failures, "file")
    failed = f"; {lost} could not be loaded" if measured.failures else ""
    sentences = [
        f"Tried wallclock.open_images on {count(measured.n_files, 'file')} of the program, in"
        f" memory, with {count(job.cores, 'core')}{busy}: {digits(middle)} images per second,"
        f" {digits(slowest)} to {digits(fastest)} in {count(n_passes, 'pass')}{failed}.",
        f"Gain of the program: {said[0]} follows from this rate, {said[1]} was predicted."
        " The program was not run again.",
    ]
    numbers = {**asdict(measured), "cores": job.cores, "img_per_s": middle}
    for name, gain in gains.items():
        numbers |= {name: gain.speedup, f"{name}_low": gain.low, f"{name}_high": gain.high}
    return Trial(sentences, numbers)


def with_loader(job: Job, cost_s: float) -> Job:
    """The program with `open_images` at this cost: core seconds to read, decode and resize.

    What the loader does not do stays: waits for the storage, the program's own transforms.
    """
    changed = _LOADER.apply(job, "mid")
    return replace(changed, seconds={**changed.seconds, "read": 0, "decode": cost_s, "resize": 0})


# --- the measurement ----------------------------------------------------------------------------


def measure_files(paths: Sequence[str], options: Mapping[str, Any]) -> Measured:
    """`measure` with these options of `open_images`. Raises UserError: there is no measurement."""
    try:
        from wallclock.loader.images import open_images
        from wallclock.stages.augment import Augment

        augment = {"augment": Augment(**options["augment"])} if "augment" in options else {}
        return measure(paths, partial(open_images, **{**options, **augment}))
    except KeyboardInterrupt:  # the program's report is not lost with the measurement
        raise UserError("Tried open_images: interrupted, no measurement.") from None
    except (ImportError, UserError) as error:
        raise UserError(f"Tried open_images: {error}") from None


def measure(
    paths: Sequence[str],
    open_batches: Callable[..., Any],
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.process_time,
) -> Measured:
    """Load the files once, which brings them to memory, then again and again.

    Args:
        paths: the files.
        open_batches: from paths and epochs to a context of batches, as `open_images`.
        clock: seconds of the wall. cpu_clock: of all threads.

    Returns:
        At least three passes of together two seconds.

    Raises UserError: no file could be loaded.
    """

    def run(epochs: int) -> tuple[int, int, float, float]:
        """Images and failures, wall and CPU seconds of a pass."""
        started, cpu_started, loaded, failures = clock(), cpu_clock(), 0, 0
        with open_batches(paths, epochs=epochs) as batches:
            for batch in batches:
                loaded += len(batch.ids)
                failures += len(batch.failures)
        return loaded, failures, clock() - started, cpu_clock() - cpu_started

    run(1)
    n_files, failures, once_s, _ = run(1)
    passes = [run(ceil(_PASS_S / once_s)) for _ in range(_LEAST_PASSES)]
    while sum(wall_s for _, _, wall_s, _ in passes) < _ALL_S:
        passes.append(run(ceil(_PASS_S / once_s)))
    rates = sorted(loaded / wall_s for loaded, _, wall_s, _ in passes)
    used_s, wall_s = (sum(each[at] for each in passes) for at in (3, 2))
    return Measured(rates, used_s / wall_s, n_files, failures)
