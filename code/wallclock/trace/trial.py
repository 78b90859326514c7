"""`wallclock trace --try`: measures `open_images` on the program's own images.

What is measured is the loader alone, with the files in memory. The gain of the program then follows
from the pipeline model with the measured cost of an image in the place of the predicted one; the
program itself is neither changed nor run again.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from wallclock.trace.changes import CHANGES, more_workers
from wallclock.trace.fixes import NOTICEABLE, errors_of, fixes_of, gain_of
from wallclock.trace.loader_rate import Measured, Pass, Request
from wallclock.trace.record import Trace
from wallclock.trace.shares import Shares
from wallclock.trace.sizes import Target
from wallclock.trace.words import count, digits, percent, times
from wallclock.trace.work import Work, work_of

#: Files at most, and seconds until a measurement is given up.
_MOST_FILES, _GIVEN_UP_S = 512, 180
#: Below this part of the cores' time, the loader did not have all of them.
_BUSY = 0.8


@dataclass(frozen=True)
class Range:
    """A value between its least and its greatest."""

    low: float
    value: float
    high: float


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
class Trial:
    """A measurement of `open_images`, and what follows.

    `rate`: images per second, median, least and greatest of the passes. `cpu_use`: of the cores,
    0 to 1. `core_ms`: `cores` over the rate, the cost of reading, decoding and resizing an image;
    `predicted_core_ms`: the same as the report predicted it. `gain`: of the program, from the
    measured cost; `predicted_gain`: from the predicted one. `only_loads`: whether nothing but
    loading then takes the program's time.
    """

    n_files: int
    failures: int
    n_passes: int
    cores: int
    rate: Range
    cpu_use: float
    core_ms: Range
    predicted_core_ms: Range
    gain: Range
    predicted_gain: Range
    only_loads: bool

    @property
    def sentences(self) -> list[str]:
        """What was measured; the cost; the gain that follows."""
        rate, cost, predicted = self.rate, self.core_ms, self.predicted_core_ms
        failed = f"; {count(self.failures, 'file')} could not be loaded" if self.failures else ""
        busy = f", {percent(self.cpu_use)} of them used" if self.cpu_use < _BUSY else ""
        rest = "its loader alone" if self.only_loads else "other parts too, as in the trace"
        return [
            f"Tried wallclock.open_images on {count(self.n_files, 'file')} of the program, in"
            f" memory, with {count(self.cores, 'core')}{busy}: {digits(rate.value)} images per"
            f" second, {digits(rate.low)} to {digits(rate.high)} in"
            f" {count(self.n_passes, 'pass')}{failed}.",
            f"Cost of reading, decoding and resizing per image: {digits(cost.value)} ms of a core"
            f" measured ({digits(cost.low)} to {digits(cost.high)}), {digits(predicted.value)} ms"
            f" predicted ({digits(predicted.low)} to {digits(predicted.high)}).",
            f"Gain of the program: {_say(self.gain)} follows from the measured cost,"
            f" {_say(self.predicted_gain)} was predicted. The program was not run again; it would"
            f" wait for {rest}.",
        ]

    def as_json(self) -> Mapping[str, Any]:
        """Its key of the JSON; docs/trace.md explains the keys."""
        return {
            "files": self.n_files,
            "failures": self.failures,
            "passes": self.n_passes,
            "cores": self.cores,
            "cpu_use": self.cpu_use,
            "img_per_s": self.rate.value,
            "low": self.rate.low,
            "high": self.rate.high,
            **_as_json("core_ms", self.core_ms),
            **_as_json("predicted_core_ms", self.predicted_core_ms),
            **_as_json("measured_gain", self.gain),
            **_as_json("predicted_gain", self.predicted_gain),
            "only_loads": self.only_loads,
        }


def _say(gain: Range) -> str:
    return f"{times(gain.value)} ({times(gain.low)} to {times(gain.high)})"


def _as_json(name: str, values: Range) -> Mapping[str, float]:
    return {name: values.value, f"{name}_low": values.low, f"{name}_high": values.high}


def try_loader(trace: Trace, paths: Sequence[str]) -> Trial | Untried:
    """Measure `open_images` on these files as the report proposes it, in a process of its own."""
    shares = Shares(trace)
    work = work_of(shares)
    if work is None:
        return Untried("Nothing to try: the program loaded no image that the trace counts.")
    if work.target is None:
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
    options = {
        **geometry_of(work.target),
        "batch": work.loader_batch,
        "workers": more_workers(work),
    }
    measured = measure_apart(Request(files, options))
    return measured if isinstance(measured, Untried) else conclude(shares, work, measured)


def geometry_of(target: Target) -> Mapping[str, Any]:
    """The size of the images, as options of `open_images`; `augment` as an `Augment`'s.

    Of crops only the crop: the program's other transforms are counted as its own.
    """
    if target.mode == "crop":
        return {"size": target.px, "augment": {"flip": 0.0, "jitter": 0.0}}
    if target.mode == "squash":
        return {"size": target.size[::-1]}
    return {"preprocess": f"{target.mode}:{target.px},crop:{target.px}x{target.px}"}


def measure_apart(request: Request) -> Measured | Untried:
    """`loader_rate.measure` in a new process on the same cores, with this one's import path."""
    module = "wallclock.trace.loader_rate"
    code = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main()"
    given = json.dumps({"paths": request.paths, "options": request.options})
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            input=given,
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
    if not passes:
        return Untried(f"Tried open_images: no file could be loaded; {answer['reason']}")
    return Measured(passes, **answer)


def conclude(shares: Shares, work: Work, measured: Measured) -> Trial | Untried:
    """What follows from the measurement for the program, beside what was predicted."""
    fixes = fixes_of(shares)
    fix = next((fix for fix in fixes.alone if fix.name == "open_images"), None)
    if fix is None:
        return Untried("Nothing to try: the trace has no images that open_images would load.")
    rates = sorted(each.images / each.seconds for each in measured.passes)
    rate = Range(rates[0], median(rates), rates[-1])
    cores = min(work.cores, more_workers(work))
    slowest, usual, fastest = (with_loader(work, cores / value) for value in rates_of(rate))
    now = work.img_per_s()
    then = slowest.img_per_s(), usual.img_per_s(), fastest.img_per_s()
    low, gain, high = gain_of(now, then, errors_of(shares, fixes.model_error))
    seconds = sum(each.seconds for each in measured.passes)
    return Trial(
        n_files=measured.n_files,
        failures=measured.failures,
        n_passes=len(measured.passes),
        cores=cores,
        rate=rate,
        cpu_use=sum(each.cpu_s for each in measured.passes) / (seconds * cores),
        core_ms=Range(*(1e3 * cores / value for value in reversed(rates_of(rate)))),
        predicted_core_ms=Range(*(1e3 * _loader_s(work, luck) for luck in (1, 0, -1))),
        gain=Range(low, gain, high),
        predicted_gain=Range(fix.low, fix.gain, fix.high),
        only_loads=_only_loads(usual),
    )


def rates_of(rate: Range) -> tuple[float, float, float]:
    """Least, median, greatest."""
    return rate.low, rate.value, rate.high


def with_loader(work: Work, cost_s: float) -> Work:
    """The program with `open_images` at this cost: core seconds to read, decode and resize.

    What the loader does not do stays: waits for the storage, the program's own transforms.
    """
    return replace(_changed(work, 0.0), read_s=0.0, decode_s=cost_s, resize_s=0.0)


def _changed(work: Work, luck: float) -> Work:
    return next(change for change in CHANGES if change.name == "open_images").apply(work, luck)


def _loader_s(work: Work, luck: float) -> float:
    changed = _changed(work, luck)
    return changed.read_s + changed.decode_s + changed.resize_s


def _only_loads(work: Work) -> bool:
    """Whether the program would be no faster without all that is not loading."""
    alone = replace(work, h2d_s=0.0, model_s=0.0, main_s=0.0, call_s=0.0)
    return alone.img_per_s() <= NOTICEABLE * work.img_per_s()
