"""Protocol `serialization`: vectors into each sink, and back."""

import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest

from experiments.serialization import measure as protocol
from harness import sinks
from harness.sinks import npy
from harness.spec import SINKS, Cell, Recipe
from tests.harness.test_profiler import FakeClock
from wallclock.recipe import ModelSpec


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
