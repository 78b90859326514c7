"""What is inside the timer, synchronized, and kept out."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.engines import pipeline
from harness.engines.pipeline import DeviceStages, device_stages
from harness.protocols import serial as protocol
from harness.protocols.protocol import no_progress
from harness.protocols.throughput import throughput
from harness.spec import Cell, Recipe, Slice
from wallclock.recipe import ModelSpec

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
