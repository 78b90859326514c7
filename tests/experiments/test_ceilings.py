"""Protocols `ceiling` and `serialization`: one part, and nothing else that limits it."""

import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest

from experiments.limits import measure as limits
from experiments.serialization import measure as protocol
from harness import sinks
from harness.protocols.protocol import Measurement, no_progress
from harness.sinks import npy
from harness.spec import SINKS, Cell, Recipe, Slice
from tests.conftest import FORKS
from tests.harness.protocols.test_loading import MODEL, OURS, PAPER
from tests.harness.test_profiler import FakeClock
from wallclock.errors import Unavailable
from wallclock.recipe import ModelSpec

pytestmark = FORKS


def run(corpus: Slice, recipe: Recipe, **params: Any) -> Measurement:
    cell = Cell("limits", "ceiling", "x", 0, recipe, corpus, MODEL, params)
    return limits.ceiling(cell, Path(), no_progress)


@pytest.mark.parametrize("recipe", [OURS, PAPER], ids=["threads", "dataloader"])
@pytest.mark.parametrize("kind", ["decode_files", "decode_memory", "forward", "synthetic"])
def test_ceilings(
    corpus: Slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: Recipe, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.sched_getaffinity(0)
    result = run(corpus, recipe, kind=kind, seconds=0.02)
    assert result.values["n_loaded"] > 0
    assert os.sched_getaffinity(0) == before
    if kind.startswith("decode"):
        rates = result.values["core_img_per_s"]
        assert len(rates) == len(before)
        assert sum(rates) == pytest.approx(result.values["img_per_s"])
    else:
        assert result.values["img_per_s"] <= 1000, "the mock model takes a millisecond an image"


@pytest.mark.slow
def test_the_engines_own_ceiling(corpus: Slice) -> None:
    result = run(corpus, OURS, kind="engine", seconds=0.02)
    assert result.values["n_loaded"] % OURS.batch_size == 0
    assert result.values["img_per_s"] > 0


def test_nothing_is_copied_on_the_host(corpus: Slice) -> None:
    with pytest.raises(Unavailable, match="the device is the host"):
        run(corpus, OURS, kind="h2d", seconds=0.02)


def cell_of(sink: str, fsync: bool = False) -> Cell:
    params = {"n_vectors": 300, "dim": 16, "seed": 1, "fsync": fsync}
    recipe = Recipe("test", sink=sink, batch_size=64)
    model = ModelSpec("none", weights="none")
    return Cell("serialization", "serialization", "test", 0, recipe, None, model, params)


def measured(cell: Cell, work: Path, clock: Callable[[], int] = perf_counter_ns) -> Any:
    return protocol.serialization(cell, work, lambda done: None, clock)


@pytest.mark.parametrize("fsync", [False, True])
@pytest.mark.parametrize("sink", SINKS)
def test_vectors_read_back(tmp_path: Path, sink: str, fsync: bool) -> None:
    result = measured(cell_of(sink, fsync), tmp_path)
    assert [result.values[name] for name in ("read_back", "n_vectors", "dim")] == [True, 300, 16]
    assert result.values["size_mib"] >= 300 * 16 * 4 / 2**20
    (write,), syncs = result.samples["write"], result.samples["fsync"]
    assert len(syncs) == fsync
    assert sum(syncs) < write
    ids, vectors = sinks.read(tmp_path / "timed" / f"vectors.{sink}")
    assert (len(set(ids)), vectors.shape) == (300, (300, 16))


@pytest.mark.parametrize("spoil", ["id", "vector", "order"])
@pytest.mark.parametrize("sink", SINKS)
def test_bit_is_seen(tmp_path: Path, monkeypatch: Any, sink: str, spoil: str) -> None:
    read = sinks.read

    def spoiled(path: Path) -> tuple[list[str], sinks.Vectors]:
        ids, vectors = read(path)
        vectors = vectors.copy()
        if spoil == "id":
            ids[7] += "x"
        elif spoil == "vector":
            vectors.view(np.uint32)[7, 3] ^= 1
        else:
            vectors[[0, 1]] = vectors[[1, 0]]
        return ids, vectors

    monkeypatch.setattr(sinks, "read", spoiled)
    assert measured(cell_of(sink), tmp_path).values["read_back"] is False


def test_close_and_sync_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    close, sync = npy.Npy.close, sinks.sync_folder

    def slow_close(self: npy.Npy) -> None:
        clock.now += 50
        close(self)

    def slow_sync(folder: Path) -> None:
        clock.now += 700
        sync(folder)

    monkeypatch.setattr(npy.Npy, "close", slow_close)
    monkeypatch.setattr(sinks, "sync_folder", slow_sync)
    buffered, synced = (measured(cell_of("npy", fsync), tmp_path, clock) for fsync in (False, True))
    assert buffered.samples == {"write": [50], "fsync": []}
    assert synced.samples == {"write": [750], "fsync": [700]}


@pytest.mark.parametrize("sink", SINKS)
def test_sync_reaches_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: str) -> None:
    writer = sinks.make(sink, tmp_path, 4)
    writer.write(["a"], np.zeros((1, 4), np.float32))
    writer.close()
    synced = list[int]()
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    sinks.sync_folder(tmp_path)
    assert set(synced) == {path.stat().st_ino for path in [*tmp_path.iterdir(), tmp_path]}
