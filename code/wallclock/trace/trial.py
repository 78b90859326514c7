"""`wallclock trace --try`: measures `open_images` on the program's own images.

What is measured is the loader alone, in this process, with the files in memory. The gain of
the program then follows from the pipeline model with the measured cost of an image in the place of
the predicted one; the program itself is neither changed nor run again.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from statistics import median
from typing import Any

from wallclock.errors import UserError
from wallclock.predict.advice import FIXES, Job, gain_of
from wallclock.trace.fixes import errors_of, options_of, say_gain
from wallclock.trace.record import Trace
from wallclock.trace.shares import Shares
from wallclock.trace.work import job_of
from wallclock.words import count, digits

#: Files at most.
_MOST_FILES = 128
#: Seconds of a pass, of which threads take a few milliseconds to start, and of all passes at least.
_PASS_S, _ALL_S = 0.7, 2.0
_LEAST_PASSES = 3

_LOADER = FIXES["open_images"]


@dataclass(frozen=True)
class Trial:
    """What `--try` has to say: of a measurement and the gain that follows, or why there is none.

    `numbers`: the same as keys of the JSON.
    """

    text: str
    numbers: Mapping[str, Any]


def try_loader(trace: Trace) -> Trial:
    """Measure `open_images` on the program's files as the report proposes it."""
    shares = Shares(trace)
    job = job_of(shares)
    files = [path for path in trace.paths if os.path.isfile(path)][:_MOST_FILES]
    if job is None or not job.decoded:
        reason = "the program decoded no image that the trace counts"
    elif job.target is None:
        reason = (
            "the program has no size to which it resizes most of its images, in a function that is"
            " counted"
        )
    elif not files:
        reason = (
            "no file of the program's images is known here; they came from the network, an archive"
            " or a reader that is not seen: trace a run on a folder of them"
        )
    else:
        try:
            return conclude(shares, job, len(files), measure(files, options_of(job)))
        except KeyboardInterrupt:  # the program's report is not lost with the measurement
            reason = "it was interrupted"
        except (ImportError, UserError) as error:
            reason = str(error)
    return Trial(f"open_images was not tried: {reason}.", {"reason": reason})


def conclude(shares: Shares, job: Job, n_files: int, rates: Sequence[float]) -> Trial:
    """What follows for the program from `rates`, the slowest first, beside what was predicted.

    What the loader does not do stays: waits for the storage, the program's own transforms.
    """
    slowest, middle, fastest = rates[0], median(rates), rates[-1]
    errors = errors_of(shares, job)
    loaded = _LOADER.apply(job, "mid")
    parts = {**loaded.seconds, "read": 0.0, "resize": 0.0}
    costs = [{**parts, "decode": job.cores / rate} for rate in (slowest, middle, fastest)]
    changed = [replace(loaded, seconds=seconds) for seconds in costs]
    measured, predicted = gain_of(job, changed, errors), _LOADER.gain(job, errors)
    text = (
        f"Tried wallclock.open_images on {count(n_files, 'file')} of the program, in memory, with"
        f" {count(job.cores, 'core')}: {digits(middle)} images per second, {digits(slowest)} to"
        f" {digits(fastest)} in {count(len(rates), 'pass')}. Gain of the program:"
        f" {say_gain(measured)} follows from this rate, {say_gain(predicted)} was predicted. The"
        " program was not run again."
    )
    gains = {"measured_gain": asdict(measured), "predicted_gain": asdict(predicted)}
    return Trial(text, {"n_files": n_files, "rates": rates, "img_per_s": middle, **gains})


def measure(
    files: Sequence[str], options: Mapping[str, Any], clock: Callable[[], float] = time.perf_counter
) -> Sequence[float]:
    """Images per second of passes over the files, the slowest first, with these options.

    Of crops only the crop: the program's other transforms are counted as its own. `clock`: seconds.

    Raises UserError: no file could be loaded. ImportError: a library of the loader is missing.
    """
    from wallclock.loader.images import open_images
    from wallclock.stages.augment import Augment

    augment = {"augment": Augment(flip=0.0, jitter=0.0)} if "augment" in options else {}

    def run(epochs: int) -> tuple[int, float]:
        started, loaded = clock(), 0
        with open_images(files, epochs=epochs, **{**options, **augment}) as batches:
            for batch in batches:
                loaded += len(batch.ids)
        return loaded, clock() - started

    run(1)  # brings the files to memory
    _, once_s = run(1)
    rates: list[float] = []
    until = clock() + _ALL_S
    while len(rates) < _LEAST_PASSES or clock() < until:
        loaded, took_s = run(ceil(_PASS_S / once_s))
        rates.append(loaded / took_s)
    return sorted(rates)
