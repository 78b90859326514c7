"""The serial protocol: what is inside the timer, what is synchronized, what is kept out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wallclock.corpus import synthetic
from wallclock.engines import pipeline as pipelines
from wallclock.engines.pipeline import Pipeline
from wallclock.measure import serial as protocol
from wallclock.measure import throughput as throughput_protocol
from wallclock.measure.protocol import Measurement
from wallclock.spec import Cell, CorpusSpec, ModelSpec, Recipe, Slice

MODEL = ModelSpec("null", weights="none", input_px=32)
RECIPE = Recipe("test", batch_size=4)
N, BATCHES = 10, 3


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Slice:
    folder = tmp_path_factory.mktemp("corpus")
    return synthetic.prepare(
        CorpusSpec("synthetic"), "small_256", N, folder, lambda done, total, what: None
    )


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the pipeline did, in order: device stages by name, and `sync` for each synchronize."""
    log: list[str] = []

    def logged(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            log.append(name)
            return function(*arguments)

        return call

    build = pipelines.build

    def spy(*arguments: Any) -> Pipeline:
        made = build(*arguments)
        stages: dict[str, Any] = {
            name: logged(name, getattr(made, name)) for name in ("h2d", "forward", "d2h", "finish")
        }
        return replace(made, synchronize=lambda: log.append("sync"), **stages)

    monkeypatch.setattr(pipelines, "build", spy)
    return log


def measure(
    corpus: Slice, work: Path, run: Callable[..., Measurement] = protocol.serial
) -> Measurement:
    cell = Cell("serial", "serial", "test", 0, RECIPE, corpus, MODEL, {"max_failures": 0})
    return run(cell, work, lambda done: None)


def test_every_device_stage_waits_for_the_device_before_and_after(
    corpus: Slice, tmp_path: Path, events: list[str]
) -> None:
    measure(corpus, tmp_path)
    steady = events[events.index("sync") :]
    per_batch = [word for name in ("h2d", "forward", "d2h") for word in ("sync", name, "sync")]
    assert steady[: len(per_batch)] == per_batch
    assert events.count("sync") == 2 * 3 * events.count("forward"), (
        "one before and one after each of three stages"
    )


def test_a_batch_warms_up_outside_the_timer(
    corpus: Slice, tmp_path: Path, events: list[str]
) -> None:
    found = measure(corpus, tmp_path)
    assert len(found.samples["forward"]) == BATCHES
    assert events.count("forward") == BATCHES + 1, "the first batch runs twice: once to warm up"


def test_batches_warm_up_outside_the_timer_of_an_overlapped_pass(
    corpus: Slice, tmp_path: Path, events: list[str]
) -> None:
    found = measure(corpus, tmp_path, throughput_protocol.throughput)
    assert found.values["warmup_batches"] >= 1
    assert events.count("forward") == len(found.samples["forward"]) + found.values["warmup_batches"]


def test_stages_add_up_to_the_wall(corpus: Slice, tmp_path: Path) -> None:
    found = measure(corpus, tmp_path)
    stages = sum(sum(values) for name, values in found.samples.items() if name != "wall")
    assert stages <= found.samples["wall"][0]
    assert stages >= 0.9 * found.samples["wall"][0]


def test_the_floor_runs_no_stage_and_costs_little(corpus: Slice, tmp_path: Path) -> None:
    real = measure(corpus, tmp_path)
    floor = measure(corpus, tmp_path, protocol.floor)
    assert floor.values["n_embedded"] == N
    assert floor.samples["wall"][0] < real.samples["wall"][0]


def test_vectors_are_kept_for_the_first_repeat_only(corpus: Slice, tmp_path: Path) -> None:
    for repeat, kept in ((0, ["vectors.parquet"]), (1, [])):
        work = tmp_path / str(repeat)
        work.mkdir()
        cell = Cell("serial", "serial", "test", repeat, RECIPE, corpus, MODEL, {})
        assert [path.name for path in protocol.serial(cell, work, lambda done: None).keep] == kept


def test_thread_counts_are_set_and_read_back(corpus: Slice, tmp_path: Path) -> None:
    assert measure(corpus, tmp_path).values["opencv_threads"] == 1
