"""A job in its own process: it is sampled, and nothing is left behind."""

import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness import jobs


def command(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_samples_are_taken_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "PERIOD_S", 0.01)
    output, sampled = tmp_path / "output.txt", list[tuple[bool, str]]()

    def sample(pid: int) -> None:
        sampled.append((psutil.pid_exists(pid), output.read_text()))

    run = jobs.run_job(
        command("print('x', flush=True); import time; time.sleep(0.4)"), output, sample
    )
    assert run.status == 0
    assert (True, "x\n") in sampled


class Turned:
    """An event that is set after some waits, and the seconds of each."""

    def __init__(self, waits: int) -> None:
        self.pauses: list[float] = []
        self._waits = waits

    def wait(self, pause_s: float) -> bool:
        self.pauses.append(pause_s)
        return len(self.pauses) == self._waits


def test_sampling_takes_a_hundredth_of_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_s = iter([0.0, 0.004, 0.004, 0.054, 0.054, 0.057])
    monkeypatch.setattr(jobs, "thread_time", lambda: next(cpu_s))
    ended: Any = Turned(4)
    jobs._sample_until(ended, lambda pid: None, 1)
    assert ended.pauses == pytest.approx([1.0, 1.0, 5.0, 1.0])


def test_an_error_of_the_sampler_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "PERIOD_S", 0.01)

    def sample(pid: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        jobs.run_job(command("import time; time.sleep(0.2)"), tmp_path / "output.txt", sample)


def test_nothing_survives_a_session(tmp_path: Path) -> None:
    program = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid)"
    )
    run = jobs.run_job(command(program), tmp_path / "output.txt", own_session=True)
    deadline = time.monotonic() + 10
    while is_running(int(run.output)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
