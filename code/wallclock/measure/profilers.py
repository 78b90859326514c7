"""Protocol `profiler`: what a stage call costs, and whether it agrees with two other profilers."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from types import FunctionType
from typing import Any

from wallclock.clock import STAGES, StageProfiler, gc_disabled
from wallclock.corpus.manifest import Manifest
from wallclock.engines import serial as engine
from wallclock.engines.pipeline import DeviceStages, LoadStages, device_stages, load_stages
from wallclock.measure.protocol import (
    Measurement,
    Progress,
    no_progress,
    open_corpus,
    set_page_cache,
)
from wallclock.measure.serial import warm_up
from wallclock.spec import Cell
from wallclock.thread_counts import set_threads

#: Stages below this share of the wall are too short for three clocks to agree on.
_MIN_SHARE = 0.01

_PREFIX = "wallclock::"

#: All nine stages.
_Stages = tuple[LoadStages, DeviceStages]


def profiler(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Overhead in interleaved rounds, then one pass under torch.profiler and one under cProfile."""
    recipe, model = cell.recipe, cell.model
    threads = set_threads(recipe, uses_torch=True)
    rounds, calls = int(cell.params["rounds"]), int(cell.params["calls_per_round"])
    overhead = _overhead(rounds, calls)
    manifest = open_corpus(cell)
    stages = load_stages(recipe, model, manifest.root), device_stages(recipe, model, work)
    warm_up(cell, *stages, manifest.valid[: recipe.batch_size])
    cache = set_page_cache(cell, manifest, manifest.valid)
    differences = {
        "torch.profiler": _against(_torch_pass, cell, manifest, stages),
        "cProfile": _against(_c_profile_pass, cell, manifest, stages),
    }
    values: dict[str, Any] = {**threads, **manifest.size_stats(), "page_cache": cache}
    values |= {
        "calls_per_round": calls,
        "differences": differences,
        "n_embedded": len(manifest.valid),
    }
    values["weights_digest"] = stages[1].weights_digest
    return Measurement(overhead, values)


def _overhead(rounds: int, calls: int) -> dict[str, list[int]]:
    """Nanoseconds a round for `calls` stage calls, the same with contextlib, and the bare loop."""
    found: dict[str, list[int]] = {"stage_calls": [], "contextlib_calls": [], "bare_loop": []}
    with gc_disabled():
        for _ in range(rounds):
            found["stage_calls"].append(_time_stage_calls(calls))
            found["contextlib_calls"].append(_time_contextlib_calls(calls))
            found["bare_loop"].append(_time_bare_loop(calls))
    return found


def _time_stage_calls(calls: int) -> int:
    profiler = StageProfiler()
    began = perf_counter_ns()
    for _ in range(calls):
        with profiler.stage("decode"):
            pass
    return perf_counter_ns() - began


def _time_contextlib_calls(calls: int) -> int:
    totals: dict[str, int] = {}
    counts: dict[str, int] = {}

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        """The plain way to write a stage profiler: totals and counts, no samples."""
        began = perf_counter_ns()
        try:
            yield
        finally:
            totals[name] = totals.get(name, 0) + perf_counter_ns() - began
            counts[name] = counts.get(name, 0) + 1

    began = perf_counter_ns()
    for _ in range(calls):
        with stage("decode"):
            pass
    return perf_counter_ns() - began


def _time_bare_loop(calls: int) -> int:
    began = perf_counter_ns()
    for _ in range(calls):
        pass
    return perf_counter_ns() - began


_Pass = Callable[[Cell, Manifest, _Stages], tuple[StageProfiler, dict[str, float]]]


def _against(run: _Pass, cell: Cell, manifest: Manifest, stages: _Stages) -> dict[str, float]:
    """Relative difference per stage, |ours - theirs| / theirs, for stages of at least 1 % of the pass."""
    profiler, theirs = run(cell, manifest, stages)
    ours = profiler.seconds()
    total = sum(ours.values())
    compared = [name for name in STAGES if ours.get(name, 0) >= _MIN_SHARE * total]
    return {name: abs(ours[name] - theirs[name]) / theirs[name] for name in compared}


def _torch_pass(
    cell: Cell, manifest: Manifest, stages: _Stages
) -> tuple[StageProfiler, dict[str, float]]:
    from torch.profiler import ProfilerActivity, profile, record_function

    def label(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        held: list[Any] = []

        def labelled(*arguments: Any) -> Any:
            with record_function(_PREFIX + name):
                # What the last call took is let go here, inside both clocks: freeing a picture of full
                # size takes a millisecond, which the engine's own rebinding spends between the two.
                held[:] = arguments
                return function(*arguments)

        return labelled

    profiler = StageProfiler(stages[1].synchronize)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        with record_function("warm-up"):
            pass  # the first one costs milliseconds, before its own clock starts
        _pass(cell, manifest, _wrapped(stages, label), profiler)
    events = {event.key: event.cpu_time_total / 1e6 for event in recorded.key_averages()}
    return profiler, {name: events.get(_PREFIX + name, 0.0) for name in STAGES}


def _c_profile_pass(
    cell: Cell, manifest: Manifest, stages: _Stages
) -> tuple[StageProfiler, dict[str, float]]:
    def label(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        held: list[Any] = []

        def labelled(*arguments: Any) -> Any:
            held[:] = arguments  # as under torch.profiler
            return function(*arguments)

        # cProfile tells functions apart by file, line and name: give each stage a name of its own.
        code = labelled.__code__.replace(co_name=_PREFIX + name)
        return FunctionType(code, labelled.__globals__, closure=labelled.__closure__)

    profiler = StageProfiler(stages[1].synchronize)
    recorder = cProfile.Profile()
    wrapped = _wrapped(stages, label)
    recorder.runcall(_pass, cell, manifest, wrapped, profiler)
    stats: Any = pstats.Stats(recorder)
    cumulative = {key[2]: timing[3] for key, timing in stats.stats.items()}
    return profiler, {name: cumulative.get(_PREFIX + name, 0.0) for name in STAGES}


def _wrapped(
    stages: _Stages, label: Callable[[str, Callable[..., Any]], Callable[..., Any]]
) -> _Stages:
    def labelled(part: LoadStages | DeviceStages) -> dict[str, Any]:
        names = [name for name in STAGES if hasattr(part, name)]
        return {name: label(name, getattr(part, name)) for name in names}

    load, device = stages
    # The sink stays open for the next pass.
    wrapped = replace(device, finish=lambda: None, **labelled(device))
    return replace(load, **labelled(load)), wrapped


def _pass(cell: Cell, manifest: Manifest, stages: _Stages, profiler: StageProfiler) -> None:
    recipe = cell.recipe
    items = manifest.valid
    with gc_disabled():
        engine.run(items, *stages, profiler, recipe.batch_size, len(items), no_progress)
