"""The profiler's own measurement: its arithmetic, its cost, and agreement with two others."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.test_clock import FakeClock
from wallclock.clock import STAGES, StageProfiler
from wallclock.corpus.manifest import Item, Manifest
from wallclock.engines.pipeline import null_stages
from wallclock.measure import serial as profilers
from wallclock.spec import Cell, ModelSpec, Recipe

RECIPE = Recipe("baseline", batch_size=4)
CELL = Cell("profiler", "profiler", "profiler", 0, RECIPE, None, ModelSpec("null", "none"))
ITEMS = tuple(Item(f"{index}", f"{index}", 1, 1, 1, "", "jpeg", "", 3, 0) for index in range(8))
MANIFEST = Manifest("folder", "original", Path("/"), ITEMS)


def test_differences_of_stages_over_one_per_cent() -> None:
    clock = FakeClock()
    profiler = StageProfiler(clock=clock)
    for name, ns in (("decode", 4_000_000_000), ("forward", 5_950_000_000), ("read", 50_000_000)):
        with profiler.stage(name):
            clock.now += ns
    theirs = {**dict.fromkeys(STAGES, 0.0), "decode": 5.0, "forward": 5.95, "read": 1.0}
    assert profilers.differences(profiler, theirs) == {
        "decode": pytest.approx(0.2),
        "forward": pytest.approx(0),
    }


def test_overhead_rounds() -> None:
    samples = profilers.overhead(3, 100)
    assert set(samples) == {"stage_calls", "contextlib_calls", "bare_loop"}
    assert all(len(rounds) == 3 and min(rounds) > 0 for rounds in samples.values())


@pytest.mark.slow
def test_stage_call_costs_half_of_contextlib() -> None:
    samples = profilers.overhead(15, 3_000)
    # The fastest round of each: other load on the machine can only add.
    stage, plain, bare = (
        min(samples[name]) for name in ("stage_calls", "contextlib_calls", "bare_loop")
    )
    assert bare < stage
    assert stage - bare <= 0.5 * (plain - bare)


@pytest.mark.parametrize("run", [profilers.torch_pass, profilers.c_profile_pass])
def test_calls_under_another_profiler(run: Callable[..., Any]) -> None:
    ours, theirs = run(CELL, MANIFEST, null_stages())
    images, batches = dict.fromkeys(STAGES[:4], 8), dict.fromkeys(STAGES[4:8], 2)
    assert ours.counts() == {**images, **batches, "serialize": 3}
    assert set(theirs) == set(STAGES)
    assert min(theirs.values()) >= 0


@pytest.mark.slow
@pytest.mark.parametrize("run", [profilers.torch_pass, profilers.c_profile_pass])
def test_another_profiler_agrees(run: Callable[..., Any]) -> None:
    seconds = {"read": 0.001, "decode": 0.004, "forward": 0.01}
    load, device = null_stages()

    def slow(part: Any, name: str) -> Callable[..., Any]:
        def stage(*arguments: Any) -> Any:
            time.sleep(seconds[name])
            return getattr(part, name)(*arguments)

        return stage

    loading: dict[str, Any] = {name: slow(load, name) for name in ("read", "decode")}
    stages = replace(load, **loading), replace(device, forward=slow(device, "forward"))
    ours, theirs = run(CELL, MANIFEST, stages)
    assert profilers.differences(ours, theirs) == dict.fromkeys(seconds, pytest.approx(0, abs=0.25))
    assert min(theirs[name] for name in seconds) > theirs["resize"] >= 0
