"""A command killed at random moments and started again: does it leave what it leaves undisturbed?

Half of the moments are uniform over the time of an uninterrupted run, half over its phases: a phase
is chosen, one of its occurrences, and a moment of it. A phase begins with a line `phase <name>` on
standard output or error; before the first one it is `start`. SIGKILL goes to the whole process
group, so that no child outlives its parent.
"""

import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

_PHASE = re.compile(r"phase (\w+)")


@dataclass(frozen=True)
class Job:
    """A command that writes to a folder, the same one whenever it is started again.

    `result`: every id with its vector's bytes, in any order, from that folder once the job has
    ended. `limit_s`: what no run exceeds. `victim`: kills a part of the job that the process runs;
    the command is started again only where that ends it.
    """

    argv: Callable[[Path], Sequence[str]]
    result: Callable[[Path], Iterable[tuple[str, bytes]]]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    limit_s: float = 60
    victim: Callable[[int], object] | None = None


@dataclass
class KillReport:
    """What happened. `kills`: by phase; `ended`: runs that were over before their moment.

    `aborted`: why jobs ended that lost a part.
    """

    kills: Counter[str] = field(default_factory=Counter)
    ended: int = 0
    aborted: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)

    @property
    def exactly_once(self) -> bool:
        """Whether every id was there once, with the same bytes."""
        return not (self.missing or self.doubled or self.different)

    def __str__(self) -> str:
        phases = ", ".join(f"{n} in {phase}" for phase, n in sorted(self.kills.items()))
        wrong = (f"{name} {getattr(self, name)}" for name in ("missing", "doubled", "different"))
        return f"{self.kills.total()} kills ({phases}), {self.ended} too late; {'; '.join(wrong)}"


class _Process:
    """A running job; `phases` grows while it runs: (seconds since its start, name)."""

    def __init__(self, job: Job, out: Path) -> None:
        self._began = time.monotonic()
        self._limit_s = job.limit_s
        self._process = subprocess.Popen(
            list(job.argv(out)),
            cwd=job.cwd,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | dict(job.env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.phases = [(0.0, "start")]
        self.output = ""
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with self._changed:
                    self.output += line
                    if match := _PHASE.match(line):
                        self.phases.append((time.monotonic() - self._began, match[1]))
                    self._changed.notify_all()
        self._process.wait()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for(self, phase: str, occurrence: int, delay: float) -> bool:
        """Wait for a moment after a phase's n-th beginning; False if the job ends before it."""

        def count() -> int:
            return sum(name == phase for _, name in self.phases)

        with self._changed:
            self._changed.wait_for(lambda: self._ended or count() > occurrence, self._limit_s)
            return not self._ended and not self._changed.wait_for(lambda: self._ended, delay)

    def kill(self, victim: Callable[[int], object] | None = None) -> str:
        """End the process group, or what `victim` ends; return the phase it was in."""
        if victim is not None:
            phase = self.phases[-1][1]
            victim(self._process.pid)
            return phase
        os.killpg(self._process.pid, signal.SIGKILL)
        self._reader.join()
        return self.phases[-1][1]

    def finish(self) -> float:
        """Wait for the end; return the seconds it took. Raises AssertionError: it failed."""
        self._reader.join(self._limit_s)
        if not self._ended:
            self.kill()
            raise AssertionError(f"still running after {self._limit_s:g} s\n{self.output}")
        assert self._process.returncode == 0, self.output
        return time.monotonic() - self._began


@dataclass(frozen=True)
class Undisturbed:
    """A run without a kill: its result, and how long each phase took."""

    result: Mapping[str, bytes]
    phases: Sequence[tuple[float, str]]
    seconds: float


def run_undisturbed(job: Job, out: Path) -> Undisturbed:
    """Run the job once. Raises AssertionError: it failed, or left an id twice or none at all."""
    process = _Process(job, out)
    seconds = process.finish()
    pairs = list(job.result(out))
    if not len(dict(pairs)) == len(pairs) > 0:
        raise AssertionError("an id without a kill twice, or none")
    return Undisturbed(dict(pairs), process.phases, seconds)


def kill_at_random(
    job: Job,
    folder: Path,
    seed: int,
    rounds: int,
    kills: int = 3,
    undisturbed: Undisturbed | None = None,
) -> KillReport:
    """Run `rounds` times with one to `kills` kills, and compare with an undisturbed run.

    Raises AssertionError: a run without a kill failed, or the undisturbed one left an id twice.
    """
    undisturbed = undisturbed or run_undisturbed(job, folder / "undisturbed")
    report = KillReport()
    rng = random.Random(seed)
    for number in range(rounds):
        out = folder / f"round-{number}"
        _run_round(job, out, rng, rng.randint(1, kills), undisturbed, report)
        _compare(list(job.result(out)), undisturbed.result, report)
    return report


def _compare(
    pairs: Sequence[tuple[str, bytes]], expected: Mapping[str, bytes], report: KillReport
) -> None:
    """Report what a round has left beside each expected id once, with the same bytes."""
    counts = Counter(name for name, _ in pairs)
    report.missing += sorted(expected.keys() - counts.keys())
    report.doubled += sorted(name for name, n in counts.items() if n > 1)
    report.different += sorted({name for name, vector in pairs if expected.get(name) != vector})


def _run_round(
    job: Job,
    out: Path,
    rng: random.Random,
    kills: int,
    undisturbed: Undisturbed,
    report: KillReport,
) -> None:
    """Kill the job so many times, then let it end."""
    for _ in range(kills):
        moment = _moment(rng, undisturbed.phases, undisturbed.seconds)
        process = _Process(job, out)
        if not process.wait_for(*moment):
            process.finish()
            report.ended += 1
            break
        report.kills[process.kill(job.victim)] += 1
        if job.victim is not None:
            try:
                process.finish()
                return
            except AssertionError as error:
                report.aborted.append(str(error))
    _Process(job, out).finish()


def _moment(
    rng: random.Random, phases: Sequence[tuple[float, str]], duration: float
) -> tuple[str, int, float]:
    """A phase, the number of its occurrence and the seconds after that began."""
    spans = [(name, end - at) for (at, name), (end, _) in pairwise([*phases, (duration, "")])]
    phase = rng.choice(sorted({name for name, _ in spans}))
    if len(phases) == 1 or rng.random() < 0.5:
        return "start", 0, rng.uniform(0, duration)
    lengths = [length for name, length in spans if name == phase]
    occurrence = rng.randrange(len(lengths))
    return phase, occurrence, rng.uniform(0, lengths[occurrence])
