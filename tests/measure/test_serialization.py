"""The serialization protocol: every vector back as it was, and the wait for the disk in the time."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wallclock.measure import serialization as protocol
from wallclock.spec import Cell, ModelSpec, Recipe
from wallclock.stages import sinks

FORMATS = ("parquet", "lmdb", "npy")


def cell_of(sink: str, fsync: bool = False, n: int = 300) -> Cell:
    params = {"n_vectors": n, "dim": 16, "seed": 1, "fsync": fsync}
    recipe = Recipe("test", sink=sink, batch_size=64)
    return Cell(
        "serialization",
        "serialization",
        "test",
        0,
        recipe,
        None,
        ModelSpec("none", weights="none"),
        params,
    )


def measured(cell: Cell, work: Path) -> Any:
    return protocol.serialization(cell, work, lambda done: None)


@pytest.mark.parametrize("fsync", [False, True])
@pytest.mark.parametrize("sink", FORMATS)
def test_all_vectors_come_back(tmp_path: Path, sink: str, fsync: bool) -> None:
    found = measured(cell_of(sink, fsync), tmp_path)
    assert found.values["read_back"] is True
    assert (found.values["n_vectors"], found.values["dim"]) == (300, 16)
    assert found.values["size_mib"] >= 300 * 16 * 4 / 2**20
    (whole,) = found.samples["write"]
    waits = found.samples["fsync"]
    assert len(waits) == fsync
    assert sum(waits) < whole
    ids, vectors = sinks.READERS[sink](tmp_path / "timed" / f"vectors.{sink}")
    assert (len(set(ids)), vectors.shape) == (300, (300, 16))


@pytest.mark.parametrize("spoil", ["id", "vector", "order"])
@pytest.mark.parametrize("sink", FORMATS)
def test_a_difference_of_one_bit_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: str, spoil: str
) -> None:
    read = sinks.READERS[sink]

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

    monkeypatch.setitem(sinks.READERS, sink, spoiled)
    assert measured(cell_of(sink), tmp_path).values["read_back"] is False


def test_closing_and_the_wait_for_the_disk_are_in_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close, sync = sinks.NpySink.close, sinks.sync_folder

    def slow_close(self: sinks.NpySink) -> None:
        time.sleep(0.05)
        close(self)

    def slow_sync(folder: Path) -> None:
        time.sleep(0.5)
        sync(folder)

    monkeypatch.setattr(sinks.NpySink, "close", slow_close)
    monkeypatch.setattr(sinks, "sync_folder", slow_sync)
    without, synced = (measured(cell_of("npy", fsync), tmp_path) for fsync in (False, True))
    assert 0.05e9 <= without.samples["write"][0] < 0.5e9, "fsync=no waited for the disk"
    assert synced.samples["write"][0] >= 0.55e9
    assert synced.samples["fsync"][0] >= 0.5e9


@pytest.mark.parametrize("sink", FORMATS)
def test_fsync_reaches_every_file_and_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: str
) -> None:
    writer = sinks.make(sink, tmp_path, 4)
    writer.write(["a"], np.zeros((1, 4), np.float32))
    writer.close()
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}"))
    )
    sinks.sync_folder(tmp_path)
    assert sorted(synced) == sorted(str(path) for path in [*tmp_path.iterdir(), tmp_path])


def test_only_what_a_sparse_file_holds_is_counted(tmp_path: Path) -> None:
    (tmp_path / "whole").write_bytes(b"x" * 10_000)
    with (tmp_path / "sparse").open("wb") as handle:
        handle.write(b"x" * 4096)
        handle.truncate(1 << 30)
    assert protocol.folder_bytes(tmp_path) < 1 << 20
    (tmp_path / "sparse").unlink()
    assert protocol.folder_bytes(tmp_path) == 10_000


def test_a_short_write_of_lmdb_on_a_full_disk_is_called_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB says "Input/output error" for both; only a disk without room makes it a full one."""
    import lmdb

    writer = sinks.LmdbSink(tmp_path / "vectors.lmdb", 4)

    def short(ids: Any, rows: Any) -> None:
        raise lmdb.Error("mdb_txn_commit: Input/output error")

    monkeypatch.setattr(writer, "_append", short)
    with pytest.raises(lmdb.Error):
        writer.write(["a"], np.zeros((1, 4), np.float32))

    full = os.statvfs_result((4096, 4096, 1000, 0, 0, 1, 1, 1, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    with pytest.raises(OSError, match="No space left") as caught:
        writer.write(["a"], np.zeros((1, 4), np.float32))
    assert caught.value.errno == errno.ENOSPC


def test_made_up_vectors_are_seeded_and_their_ids_like_abos() -> None:
    ids, vectors = protocol.made_up(1000, 384, 3)
    again, same = protocol.made_up(1000, 384, 3)
    assert ids == again
    assert np.array_equal(vectors, same)
    assert not np.array_equal(vectors, protocol.made_up(1000, 384, 4)[1])
    assert {len(identity) for identity in ids} == {11}
    assert len(set(ids)) == 1000
    assert vectors.dtype == np.float32
    assert abs(float(vectors.std()) - 1) < 0.01
