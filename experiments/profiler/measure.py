"""Protocol `profiler`: what a stage call of ours costs, and how far two other profilers agree."""

import cProfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from types import FunctionType
from typing import Any

from harness.corpora.manifest import Manifest
from harness.engines import pipeline
from harness.engines import serial as engine
from harness.engines.pipeline import DeviceStages, LoadStages
from harness.processes import gc_disabled, set_threads
from harness.profiler import StageProfiler
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, Progress, no_progress
from harness.protocols.serial import warm_up
from harness.spec import Cell
from wallclock.clock import DEVICE_STAGES, STAGES

#: Stages below this share of the wall time are too short for three clocks to agree on.
_MIN_SHARE = 0.01

_PREFIX = "wallclock::"

Stages = tuple[LoadStages, DeviceStages]
_OpenStage = Callable[[str], AbstractContextManager[Any]]
_Result = tuple[StageProfiler, dict[str, float]]


def profiler(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Overhead in interleaved rounds, then one pass under torch.profiler and one under cProfile."""
    recipe, model = cell.recipe, cell.model
    threads = set_threads(recipe, uses_torch=True)
    rounds, calls = int(cell.params["rounds"]), int(cell.params["calls_per_round"])
    samples = overhead(rounds, calls)
    manifest = protocol.open_corpus(cell)
    load = pipeline.load_stages(recipe, model, manifest)
    stages = load, pipeline.device_stages(recipe, model, work)
    warm_up(cell, *stages, manifest.valid[: recipe.batch_size])
    values = threads | protocol.set_page_cache(cell, manifest)
    values |= {
        "calls_per_round": calls,
        "differences": {
            "torch.profiler": differences(*torch_pass(cell, manifest, stages)),
            "cProfile": differences(*c_profile_pass(cell, manifest, stages)),
        },
        "n_embedded": len(manifest.valid),
        "weights_digest": stages[1].weights_digest,
    }
    return Measurement(samples, values)


def overhead(rounds: int, calls: int) -> dict[str, list[int]]:
    """Nanoseconds a round for `calls` stage calls, and for the bare loop."""
    samples: dict[str, list[int]] = {"stage_calls": [], "bare_loop": []}
    with gc_disabled():
        for _ in range(rounds):
            stage = StageProfiler().stage
            began = perf_counter_ns()
            for _ in range(calls):
                with stage("decode"):
                    pass
            samples["stage_calls"].append(perf_counter_ns() - began)
            began = perf_counter_ns()
            for _ in range(calls):
                pass
            samples["bare_loop"].append(perf_counter_ns() - began)
    return samples


def differences(profiler: StageProfiler, theirs: dict[str, float]) -> dict[str, float]:
    """|ours - theirs| / theirs of each stage that takes at least 1 % of all stages' seconds."""
    ours = profiler.totals
    least = _MIN_SHARE * sum(ours.values())
    compared = [name for name in STAGES if ours.get(name, 0) >= least]
    return {name: abs(ours[name] - theirs[name]) / theirs[name] for name in compared}


def torch_pass(cell: Cell, manifest: Manifest, stages: Stages) -> _Result:
    """One pass under torch.profiler: our profiler, and its seconds by stage."""
    from torch.profiler import ProfilerActivity, profile, record_function

    profiler = StageProfiler(stages[1].synchronize)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        with record_function("warm-up"):
            pass  # the first one costs milliseconds, before its own clock starts
        _pass(cell, manifest, _labelled(stages, record_function), profiler)
    events = {event.key: event.cpu_time_total / 1e6 for event in recorded.key_averages()}
    return profiler, {name: events.get(_PREFIX + name, 0.0) for name in STAGES}


def c_profile_pass(cell: Cell, manifest: Manifest, stages: Stages) -> _Result:
    """One pass under cProfile: our profiler, and its seconds by stage."""
    profiler = StageProfiler(stages[1].synchronize)
    recorder = cProfile.Profile()
    recorder.runcall(_pass, cell, manifest, _labelled(stages, nullcontext), profiler)
    entries = {getattr(entry.code, "co_name", ""): entry for entry in recorder.getstats()}
    cumulative = {name: entry.totaltime for name, entry in entries.items()}
    return profiler, {name: cumulative.get(_PREFIX + name, 0.0) for name in STAGES}


def _labelled(stages: Stages, annotate: _OpenStage) -> Stages:
    """The stages under names by which another profiler can tell them apart."""

    load, device = stages
    synchronize = device.synchronize

    def label(name: str, function: Callable[..., Any]) -> Any:
        arguments_of_last_call: list[Any] = []
        # A device's call returns before its work is done: the label ends where our stage does.
        wait = synchronize if name in DEVICE_STAGES else None

        def labelled(*arguments: Any) -> Any:
            with annotate(_PREFIX + name):
                # The last call's arguments are freed here, inside both timers: a full-size image
                # takes a millisecond, which the engine spends between the two.
                arguments_of_last_call[:] = arguments
                result = function(*arguments)
                if wait is not None:
                    wait()
                return result

        # cProfile identifies a function by file, line and name.
        code = labelled.__code__.replace(co_name=_PREFIX + name)
        return FunctionType(code, labelled.__globals__, closure=labelled.__closure__)

    def changes(part: LoadStages | DeviceStages) -> dict[str, Any]:
        return {name: label(name, getattr(part, name)) for name in STAGES if hasattr(part, name)}

    # The sink stays open for the next pass.
    open_sink = replace(device, finish=lambda: None, **changes(device))
    return replace(load, **changes(load)), open_sink


def _pass(cell: Cell, manifest: Manifest, stages: Stages, profiler: StageProfiler) -> None:
    items = manifest.valid
    with gc_disabled():
        engine.run(items, *stages, profiler, cell.recipe.batch_size, len(items), no_progress)
