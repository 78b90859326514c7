"""`wallclock trace --try`: measures `open_images` on the program's own images.

What is measured is the loader alone, in a process of its own, with the files in memory. The gain of
the program then follows from the pipeline model with the measured cost of an image in the place of
the predicted one; the program itself is neither changed nor run again.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, inf
from statistics import median
from typing import Any

from wallclock.errors import Unavailable, UserError
from wallclock.predict.advice import FIXES, Job, gain_of, workers_for
from wallclock.predict.intervals import Gain
from wallclock.predict.pictures import Target
from wallclock.trace.fixes import batch_of, errors_of
from wallclock.trace.record import Trace
from wallclock.trace.shares import Shares
from wallclock.trace.words import count, digits, percent, times
from wallclock.trace.work import job_of

#: Files at most, and seconds until a measurement is given up.
_MOST_FILES, _GIVEN_UP_S = 512, 180
#: Below this part of the cores' time, the loader did not have all of them.
_BUSY = 0.8
#: Seconds in which files are loaded for the first time, after the first batch: those are measured.
_FIRST_S = 2.0
#: Seconds of a pass, of which threads take a few milliseconds to start, and of all passes at least.
_PASS_S, _ALL_S = 0.7, 2.0
_LEAST_PASSES, _MOST_PASSES = 3, 12

_LOADER = FIXES["open_images"]


@dataclass(frozen=True)
class Untried:
    """Why there is no measurement, in a sentence that also says what to do."""

    reason: str

    @property
    def sentences(self) -> list[str]:
        """The reason."""
        return [self.reason]

    def as_json(self) -> Mapping[str, Any]:
        """Its key of the JSON."""
        return {"reason": self.reason}


@dataclass(frozen=True)
class Pass:
    """Images that one pass over the files gave; its wall and CPU seconds."""

    images: int
    seconds: float
    cpu_s: float


@dataclass(frozen=True)
class Measured:
    """`passes` over `n_files` files. `failures`: files that could not be loaded; `reason`: one."""

    passes: tuple[Pass, ...]
    n_files: int
    failures: int
    reason: str

    @property
    def rates(self) -> list[float]:
        """Images per second of the passes, the slowest first."""
        return sorted(each.images / each.seconds for each in self.passes)

    @property
    def busy_cores(self) -> float:
        """How many cores the passes used."""
        return sum(p.cpu_s for p in self.passes) / sum(p.seconds for p in self.passes)


@dataclass(frozen=True)
class Trial:
    """A measurement of `open_images` on `cores` cores, and what follows for the program.

    `gain`: from the measured cost of an image; `predicted_gain`: from the predicted one.
    """

    measured: Measured
    cores: int
    gain: Gain
    predicted_gain: Gain

    @property
    def sentences(self) -> list[str]:
        """What was measured; the gain that follows."""
        measured, rates = self.measured, self.measured.rates
        failed = measured.failures
        failed_text = f"; {count(failed, 'file')} could not be loaded" if failed else ""
        use = measured.busy_cores / self.cores
        busy = f", {percent(use)} of them used" if use < _BUSY else ""
        return [
            f"Tried wallclock.open_images on {count(measured.n_files, 'file')} of the program, in"
            f" memory, with {count(self.cores, 'core')}{busy}: {digits(median(rates))} images per"
            f" second, {digits(rates[0])} to {digits(rates[-1])} in"
            f" {count(len(rates), 'pass')}{failed_text}.",
            f"Gain of the program: {_say(self.gain)} follows from this rate,"
            f" {_say(self.predicted_gain)} was predicted. The program was not run again.",
        ]

    def as_json(self) -> Mapping[str, Any]:
        """Its key of the JSON; docs/trace.md explains the keys."""
        rates = self.measured.rates
        return {
            "files": self.measured.n_files,
            "failures": self.measured.failures,
            "passes": len(rates),
            "cores": self.cores,
            "cpu_use": self.measured.busy_cores / self.cores,
            "img_per_s": median(rates),
            "low": rates[0],
            "high": rates[-1],
            **_as_json("measured_gain", self.gain),
            **_as_json("predicted_gain", self.predicted_gain),
        }


def _say(gain: Gain) -> str:
    return f"{times(gain.speedup)} ({times(gain.low)} to {times(gain.high)})"


def _as_json(name: str, gain: Gain) -> Mapping[str, float]:
    return {name: gain.speedup, f"{name}_low": gain.low, f"{name}_high": gain.high}


def try_loader(trace: Trace, paths: Sequence[str]) -> Trial | Untried:
    """Measure `open_images` on these files as the report proposes it."""
    shares = Shares(trace)
    job = job_of(shares)
    if job is None or job.img_per_s() == inf:
        return Untried("Nothing to try: the program loaded no image that the trace counts.")
    if job.target is None:
        return Untried(
            "Nothing to try: the program has no size to which it resizes most of its images."
            " Resize them in a function that is counted."
        )
    files = [path for path in paths if os.path.isfile(path)][:_MOST_FILES]
    if not files:
        return Untried(
            "Nothing to try: no file of the program's images is known here. They came from the"
            " network, an archive or a reader that is not seen: trace a run on a folder of them."
        )
    if not _LOADER.applies(job):
        return Untried("Nothing to try: the trace has no images that open_images would load.")
    workers = workers_for(job.cores, waits=job.waits)
    options = {**geometry_of(job.target), "batch": batch_of(job), "workers": workers}
    measured = measure_apart(files, options)
    return measured if isinstance(measured, Untried) else conclude(shares, job, measured)


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
    cores, rates = job.cores, measured.rates
    changed = [with_loader(job, cores / rate) for rate in (rates[0], median(rates), rates[-1])]
    errors = errors_of(shares, job)
    return Trial(measured, cores, gain_of(job, changed, errors), _LOADER.gain(job, errors))


def with_loader(job: Job, cost_s: float) -> Job:
    """The program with `open_images` at this cost: core seconds to read, decode and resize.

    What the loader does not do stays: waits for the storage, the program's own transforms.
    """
    changed = _LOADER.apply(job, "mid")
    return replace(changed, seconds={**changed.seconds, "read": 0, "decode": cost_s, "resize": 0})


# --- the measurement ----------------------------------------------------------------------------


def measure_apart(paths: Sequence[str], options: Mapping[str, Any]) -> Measured | Untried:
    """`measure` in a new process on the same cores, with this one's import path."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main()"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            input=json.dumps({"paths": paths, "options": options}),
            capture_output=True,
            text=True,
            timeout=_GIVEN_UP_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Untried(f"Tried open_images: not done after {_GIVEN_UP_S} s, no measurement.")
    except KeyboardInterrupt:  # the program's report is not lost with the measurement
        return Untried("Tried open_images: interrupted, no measurement.")
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        return Untried(f"Tried open_images: it failed: {said[-1]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    if "error" in answer:
        return Untried(f"Tried open_images: {answer['error']}")
    passes = tuple(Pass(**each) for each in answer.pop("passes"))
    return Measured(passes, **answer)


def main() -> None:
    """In the new process: read files and options, write a `Measured` or why there is none."""
    from wallclock.loader.images import open_images
    from wallclock.stages.augment import Augment

    given = json.load(sys.stdin)
    options = given["options"]
    try:
        if "augment" in options:
            options["augment"] = Augment(**options["augment"])

        def open_batches(paths: Sequence[str], epochs: int = 1) -> Any:
            return open_images(paths, epochs=epochs, **options)

        answer = asdict(measure(given["paths"], open_batches))
    except (UserError, Unavailable) as error:
        answer = {"error": str(error)}
    # Libraries may write to standard output before: the answer is the last line.
    print(f"\n{json.dumps(answer)}")


def measure(
    paths: Sequence[str],
    open_batches: Callable[..., Any],
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.process_time,
) -> Measured:
    """Load the files once, which brings them to memory, then pass over them again and again.

    Args:
        paths: the files.
        open_batches: from paths and epochs to a context of batches, as `open_images`.
        clock: seconds of the wall. cpu_clock: of all threads.

    Returns:
        At least three passes of together two seconds.

    Raises UserError: no file could be loaded.
    """
    loaded, failures = _first_files(paths, open_batches, clock)
    reason = failures[0] if failures else ""

    def run(epochs: int) -> Pass:
        started, cpu_started = clock(), cpu_clock()
        with open_batches(loaded, epochs=epochs) as batches:
            images = sum(len(batch.ids) for batch in batches)
        return Pass(images, clock() - started, cpu_clock() - cpu_started)

    rehearsal = run(1)
    epochs = ceil(_PASS_S / rehearsal.seconds) if rehearsal.seconds > 0 else 1
    passes: list[Pass] = []
    while len(passes) < _LEAST_PASSES or (
        sum(each.seconds for each in passes) < _ALL_S and len(passes) < _MOST_PASSES
    ):
        passes.append(run(epochs))
    return Measured(tuple(passes), len(loaded), len(failures), reason)


def _first_files(
    paths: Sequence[str], open_batches: Callable[..., Any], clock: Callable[[], float]
) -> tuple[list[str], list[str]]:
    """The files that are loaded until the time is over, in order; why others could not be."""
    loaded: list[str] = []
    failures: list[str] = []
    started = None
    with open_batches(paths) as batches:
        for batch in batches:
            loaded += batch.ids
            failures += [f"{failure['id']}: {failure['reason']}" for failure in batch.failures]
            started = clock() if started is None else started
            if clock() - started > _FIRST_S:
                break
    return loaded, failures
