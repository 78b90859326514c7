"""A job whose images several processes load: when it does, and that it makes the same."""

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tests.wallclock.job.conftest import APART, QUICK, TWINS, Content, content
from wallclock import native
from wallclock.job import embed
from wallclock.job.estimate import loading_processes
from wallclock.job.runner.process import processes_for
from wallclock.predict.pace import Pace
from wallclock.recipe import FAST

Run = Callable[..., Any]


@pytest.mark.parametrize(("processes", "workers"), [(2, 0), (3, 5)])
def test_several_processes_load(
    run: Run,
    reference: Content,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    processes: int,
    workers: int,
) -> None:
    monkeypatch.setattr("wallclock.loader.opener.open_threads", None, raising=False)
    outcome = run(processes=processes, workers=workers)
    assert content(tmp_path / "out") == reference
    assert outcome.tally.copied == TWINS - APART


@pytest.mark.parametrize("given", [0, 2])
def test_a_job_says_what_nobody_asked_for(
    given: int, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wallclock.job.runner.process.processes_for", lambda *_: 2)
    said = StringIO()
    embed(images, tmp_path / "out", processes=given, console=Console(file=said), **QUICK)
    assert ("wallclock: 2 processes load the images\n" in said.getvalue()) == (given == 0)


def pace(load_ms: float, cores: int, forward_ms: float) -> Pace:
    return Pace(load_ms / 1e3, forward_ms / 1e3, cores, workers=cores)


@pytest.mark.parametrize(
    ("load_ms", "cores", "forward_ms", "compiled", "expected"),
    [
        (0.25, 1, 0.0, False, 1),  # 4,000 a second × 75 µs: 0.3 of a second under the lock
        (0.25, 2, 0.0, False, 2),  # 0.6
        (0.25, 16, 0.0, False, 10),  # 64,000 a second: 4.8
        (0.25, 16, 1.0, False, 1),  # a model of 1,000 a second: 0.08
        (0.1, 2, 0.0, True, 1),  # 20,000 a second × 11 µs: 0.22
        (0.1, 16, 0.0, True, 4),  # 160,000 a second: 1.8
        (4.0, 2, 0.0, True, 1),  # originals, 500 a second × 89 µs: 0.04
        (4.0, 64, 0.0, True, 3),  # 16,000 a second: 1.4
        (4.0, 64, 0.5, True, 1),  # 2,000 a second: 0.2
        (0.01, 4, 0.0, True, 4),  # no more than there are threads
    ],
)
def test_processes_follow_from_the_time_under_the_lock(
    load_ms: float,
    cores: int,
    forward_ms: float,
    compiled: bool,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "find", lambda: object() if compiled else None)
    assert loading_processes(pace(load_ms, cores, forward_ms or 1e-6), cores) == expected


@pytest.mark.parametrize(
    ("given", "device", "expected"), [(0, "cpu", 4), (0, "cuda", 1), (2, "cuda", 2), (3, "cpu", 3)]
)
def test_a_setting_and_a_gpu_come_first(
    given: int, device: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "find", lambda: None)
    job: Any = SimpleNamespace(recipe=replace(FAST, workers=6, device=device))
    assert processes_for(given, job, pace(0.3, 6, 1e-6)) == expected
    assert processes_for(given, job, None) == (given or 1)
