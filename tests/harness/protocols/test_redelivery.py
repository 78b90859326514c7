"""A backlog that takes longer than the visibility timeout, with real processes."""

from pathlib import Path
from typing import Any

import pytest

from harness.protocols.ladder import count_late, redelivery
from harness.protocols.protocol import no_progress
from harness.spec import Cell
from tests.experiments import made
from wallclock.recipe import ModelSpec, Recipe

#: Fifty requests a second.
MOCK = ModelSpec("null", weights="none", service_ms_per_image=20)
N, VISIBILITY_S = 400, 4


def run(work: Path, queue_size: int, seconds: float) -> dict[str, Any]:
    """Rung 2's values and the duration of a pass."""
    corpus = next(iter(made.plan(work, "experiment=[ladder]").slices({"original": 3}).values()))
    params: dict[str, Any] = {"rung": 2, "n": N, "seconds": seconds, "visibility_s": VISIBILITY_S}
    params |= {"queue_size": queue_size, "services": 1, "serve": {}, "page_cache": "warm"}
    params |= {"download_ms": 5.0, "callback_ms": 5.0, "preprocess_ms": 0.0}
    cell = Cell("ladder", "redelivery", "x", 0, Recipe("rung"), corpus, MOCK, params)
    (work / "work").mkdir()
    measured = redelivery(cell, work / "work", no_progress)
    return measured.values | {"wall_s": measured.samples["wall"][0] / 1e9}


@pytest.mark.slow
def test_without_a_bound_messages_come_again(tmp_path: Path) -> None:
    values = run(tmp_path, queue_size=0, seconds=2.5 * VISIBILITY_S)
    assert values["wall_s"] >= 2.5 * VISIBILITY_S
    assert values["completed"] < N, "at most 50 a second for as long as the timeout"
    assert values["completed_late"] < 50
    # What was left was delivered again when the timeout was over, twice.
    assert values["delivered"] >= N + (N - values["completed"])
    assert values["accepted"] <= N


@pytest.mark.slow
def test_with_the_bound_each_comes_once(tmp_path: Path) -> None:
    values = run(tmp_path, queue_size=40, seconds=60)
    names = ("completed", "delivered", "accepted", "repeated")
    assert [values[name] for name in names] == [N, N, N, 0]
    assert values["completed_late"] > 0


def test_the_second_half() -> None:
    assert count_late([0, 1, 2, 3, 4], [0, 5, 7, 8, 8]) == 1
    assert count_late([0, 10], [0, 9]) == 9
