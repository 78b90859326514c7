"""A job whose images several processes load: when it does, and that it makes the same."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.wallclock.job.conftest import TWINS, Content, content
from wallclock.job.place.here import processes_for
from wallclock.predict.costs import JobSetup, Machine, StageCosts, StepTime
from wallclock.predict.model import Pipeline
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
    assert outcome.tally.copied == TWINS


@pytest.mark.parametrize(
    ("given", "device", "ms", "limits", "expected"),
    [
        (0, "cpu", 0.3, "transform", 6),
        (0, "cuda", 0.3, "transform", 1),
        (0, "cpu", 3.0, "transform", 1),
        (0, "cpu", 0.3, "accelerator", 1),
        (2, "cuda", 3.0, "accelerator", 2),
    ],
)
def test_small_images_that_limit_are_loaded_by_processes(
    given: int, device: str, ms: float, limits: str, expected: int
) -> None:
    step = StepTime(0, 1e-9 if limits == "transform" else 1.0)
    costs, setup = StageCosts(decode_s=ms / 1e3), JobSetup(6, 64, "threads")
    measured = Pipeline(costs, step, Machine(6), setup)
    job: Any = SimpleNamespace(recipe=replace(FAST, workers=6, device=device))
    assert processes_for(given, job, measured) == expected
    assert processes_for(given, job, None) == (given or 1)
