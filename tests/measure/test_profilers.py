"""The profiler's own measurement: what a stage call costs, and that two other profilers see the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wallclock.clock import STAGES
from wallclock.corpus.manifest import Item, Manifest
from wallclock.engines import pipeline as pipelines
from wallclock.measure import profilers
from wallclock.spec import Cell, ModelSpec, Recipe

CELL = Cell(
    "profiler",
    "profiler",
    "profiler",
    0,
    Recipe("baseline", batch_size=4),
    None,
    ModelSpec("null", "none"),
)
ITEMS = tuple(Item(f"{index}", f"{index}", 1, 1, 1, "", "jpeg", "", 3, 0) for index in range(8))
MANIFEST = Manifest("folder", "original", Path("/"), ITEMS)


def sleeping(pipeline: pipelines.Pipeline, **milliseconds: float) -> pipelines.Pipeline:
    """The pipeline with stages that take so long."""

    def slow(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def stage(*arguments: Any) -> Any:
            time.sleep(milliseconds[name] / 1e3)
            return function(*arguments)

        return stage

    changes: dict[str, Any] = {name: slow(name, getattr(pipeline, name)) for name in milliseconds}
    return replace(pipeline, **changes)


def test_a_stage_call_costs_at_most_half_of_the_contextlib_version() -> None:
    found = profilers._overhead(15, 3_000)
    assert {name: len(rounds) for name, rounds in found.items()} == {
        "stage_calls": 15,
        "contextlib_calls": 15,
        "bare_loop": 15,
    }
    # The quietest round of each: what else runs on the machine can only add.
    stage, plain, bare = (
        min(found[name]) for name in ("stage_calls", "contextlib_calls", "bare_loop")
    )
    assert bare < stage
    assert stage - bare <= 0.5 * (plain - bare)


@pytest.mark.parametrize("run", [profilers._torch_pass, profilers._c_profile_pass])
def test_another_profiler_sees_each_stage_where_ours_does(run: profilers._Pass) -> None:
    pipeline = sleeping(pipelines.null(), read=1, decode=4, forward=10)
    ours, theirs = run(CELL, MANIFEST, pipeline)
    assert ours.counts() == {
        **dict.fromkeys(STAGES[:4], 8),
        **dict.fromkeys(STAGES[4:8], 2),
        "serialize": 3,
    }
    assert set(theirs) == set(STAGES)
    for name in ("read", "decode", "forward"):
        assert theirs[name] == pytest.approx(ours.seconds()[name], rel=0.25), name
    assert theirs["decode"] > theirs["forward"] > theirs["read"] > theirs["resize"] >= 0


def test_only_stages_that_take_a_while_are_compared() -> None:
    pipeline = sleeping(pipelines.null(), decode=4, forward=10)
    differences = profilers._against(profilers._c_profile_pass, CELL, MANIFEST, pipeline)
    assert set(differences) == {"decode", "forward"}
    assert max(differences.values()) < 0.25
