"""What is inside the timer, synchronized, kept out; the profiler's cost and two others."""

import cProfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.corpora.manifest import Item, Manifest
from harness.engines import pipeline
from harness.engines.pipeline import DeviceStages, device_stages, null_stages
from harness.protocols import serial as protocol
from harness.protocols.protocol import no_progress
from harness.protocols.throughput import throughput
from harness.spec import Cell, Slice
from tests import fake_cuda
from tests.wallclock.test_clock import FakeClock
from wallclock.clock import STAGES, StageProfiler
from wallclock.recipe import ModelSpec, Recipe

MODEL = ModelSpec("null", weights="none", input_px=32)
RECIPE = Recipe("test", batch_size=4)
N, BATCHES = 18, 5


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Calls in order: device stages by name, and `sync` for each synchronize."""
    log: list[str] = []

    def logged(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            log.append(name)
            return function(*arguments)

        return call

    def spy(*arguments: Any) -> DeviceStages:
        device = device_stages(*arguments)
        names = ("h2d", "forward", "d2h", "finish")
        stages: dict[str, Any] = {name: logged(name, getattr(device, name)) for name in names}
        return replace(device, synchronize=lambda: log.append("sync"), **stages)

    monkeypatch.setattr(pipeline, "device_stages", spy)
    return log


def measure(corpus: Slice, work: Path, run: Any = protocol.serial) -> Any:
    cell = Cell("serial", "serial", "test", 0, RECIPE, corpus, MODEL, {"max_failures": 0})
    return run(cell, work, no_progress)


def test_device_stages_synchronize(corpus: Slice, tmp_path: Path, events: list[str]) -> None:
    measure(corpus, tmp_path)
    steady = events[events.index("sync") :]
    per_batch = [word for name in ("h2d", "forward", "d2h") for word in ("sync", name, "sync")]
    assert steady[: len(per_batch)] == per_batch
    assert events.count("sync") == 2 * 3 * events.count("forward")


@pytest.mark.parametrize("run", [protocol.serial, throughput])
def test_warm_up_is_not_timed(corpus: Slice, tmp_path: Path, events: list[str], run: Any) -> None:
    measured = measure(corpus, tmp_path, run)
    warm = measured.values.get("warmup_batches", 1)
    assert warm >= 1
    assert events.count("forward") == len(measured.samples["forward"]) + warm


def test_stages_do_not_exceed_the_wall(corpus: Slice, tmp_path: Path) -> None:
    measured = measure(corpus, tmp_path)
    stages = sum(sum(values) for name, values in measured.samples.items() if name != "wall")
    assert 0 < stages <= measured.samples["wall"][0]
    assert len(measured.samples["forward"]) == BATCHES
    assert measured.values["ran"]["engine"] == "serial"
    assert measured.values["opencv_threads"] == 1, "set and read back"


def test_the_floor_embeds_every_image(corpus: Slice, tmp_path: Path) -> None:
    assert measure(corpus, tmp_path, protocol.floor).values["n_embedded"] == N


def test_vectors_are_kept_for_the_first_repeat_only(corpus: Slice, tmp_path: Path) -> None:
    for repeat, kept in ((0, ["vectors.parquet"]), (1, [])):
        work = tmp_path / str(repeat)
        work.mkdir()
        cell = Cell("serial", "serial", "test", repeat, RECIPE, corpus, MODEL, {})
        assert [path.name for path in protocol.serial(cell, work, no_progress).keep] == kept


CELL = Cell("profiler", "profiler", "profiler", 0, RECIPE, None, MODEL)
ITEMS = tuple(Item(f"{index}", f"{index}", 1, 1, 1, "", "jpeg", "", 3, 0) for index in range(8))
MANIFEST = Manifest("folder", "original", Path("/"), ITEMS)


def test_differences_of_stages_over_one_per_cent() -> None:
    clock = FakeClock()
    profiler = StageProfiler(clock=clock)
    for name, ns in (("decode", 4_000_000_000), ("forward", 5_950_000_000), ("read", 50_000_000)):
        with profiler.stage(name):
            clock.now += ns
    theirs = dict.fromkeys(STAGES, 0.0) | {"decode": 5.0, "forward": 5.95, "read": 1.0}
    assert protocol.differences(profiler, theirs) == {
        "decode": pytest.approx(0.2),
        "forward": pytest.approx(0),
    }


def test_a_stage_call_costs_more_than_none() -> None:
    samples = protocol.overhead(5, 3_000)
    # The fastest round of each: other load on the machine can only add.
    assert min(samples["bare_loop"]) < min(samples["stage_calls"])


@pytest.mark.parametrize("run", [protocol.torch_pass, protocol.c_profile_pass])
def test_calls_under_another_profiler(run: Callable[..., Any]) -> None:
    ours, theirs = run(CELL, MANIFEST, null_stages())
    images, batches = dict.fromkeys(STAGES[:4], 8), dict.fromkeys(STAGES[4:8], 2)
    assert ours.counts == images | batches | {"serialize": 3}
    assert set(theirs) == set(STAGES)
    assert min(theirs.values()) >= 0


@pytest.mark.parametrize("name", ["torch.profiler", "cProfile"])
def test_profilers_agree_on_a_device_behind_the_host(name: str, monkeypatch: Any) -> None:
    """Labels and stages end together, though every call returns 30 ms before its work is done."""
    cuda = fake_cuda.install(monkeypatch)
    clock = cuda.clock
    load, device = null_stages()

    def queued(work: int) -> Callable[..., Any]:
        def stage(argument: Any) -> Any:
            clock.now += 1_000_000  # of the host, for the launch
            cuda.work(work)
            return argument

        return stage

    calls: dict[str, Any] = dict.fromkeys(("h2d", "forward", "d2h"), queued(30_000_000))
    stages = load, replace(device, synchronize=cuda.synchronize, **calls)
    monkeypatch.setattr(protocol, "StageProfiler", partial(StageProfiler, clock=clock))
    if name == "cProfile":
        timed = partial(cProfile.Profile, clock, 1e-9)
        monkeypatch.setattr(cProfile, "Profile", timed)
        ours, theirs = protocol.c_profile_pass(CELL, MANIFEST, stages)
    else:
        ours, labels = StageProfiler(cuda.synchronize, clock=clock), StageProfiler(clock=clock)
        protocol._pass(CELL, MANIFEST, protocol._labelled(stages, labels.stage), ours)
        theirs = {key.removeprefix("wallclock::"): at for key, at in labels.totals.items()}
    assert ours.totals["forward"] == pytest.approx(2 * 0.031)
    assert max(protocol.differences(ours, theirs).values()) <= 0.02


@pytest.mark.slow
@pytest.mark.parametrize("run", [protocol.torch_pass, protocol.c_profile_pass])
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
    # On a busy machine there is one of a stage without work, too.
    differences = protocol.differences(ours, theirs)
    expected = dict.fromkeys(seconds, pytest.approx(0, abs=0.25))
    assert {name: differences[name] for name in seconds} == expected
    assert min(theirs[name] for name in seconds) > theirs["resize"] >= 0
