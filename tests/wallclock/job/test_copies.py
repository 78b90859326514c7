"""Whose vector a row gets, where images have the same bytes."""

import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import making
from tests.wallclock.job.conftest import QUICK, content
from wallclock.job import copies, embed
from wallclock.job.dataset import Dataset
from wallclock.job.index import by_part

PART = 1 << 32


def write(folder: Path, seeds: Sequence[int]) -> Path:
    """A folder whose i-th image is that of the i-th seed."""
    folder.mkdir()
    for at, seed in enumerate(seeds):
        (folder / f"{at:03}.jpg").write_bytes(making.jpeg(64, 48, seed))
    return folder


def test_a_copy_of_a_committed_shard(tmp_path: Path) -> None:
    """Of one that an earlier start has made, between two that are missing."""
    folder, out = write(tmp_path / "in", [0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 0, 8]), tmp_path / "out"
    options = {**QUICK, "batch": 2, "shard": 4}
    embed(folder, out, **options)
    before = content(out)
    for number in (0, 2):
        (out / f"part-{number:05d}.parquet").unlink()
    tally = embed(folder, out, **options).tally
    assert (tally.images, tally.copied) == (8, 3)
    assert content(out) == before


def test_the_first_row_of_the_first_part_is_somewhere() -> None:
    """Place 0, the only one without a bit."""
    places = np.array([-1, 0, PART + 5, 1, -1, PART])
    parts = {n: (at.tolist(), rows.tolist()) for n, at, rows in by_part(places)}
    assert parts == {0: ([1, 3], [0, 1]), 1: ([2, 5], [5, 0])}
    ((n, at, rows),) = by_part(np.array([-1, 0]))
    assert (n, at.tolist(), rows.tolist()) == (0, [1], [0])
    assert list(by_part(np.array([-1, -1]))) == []


@pytest.mark.parametrize("is_full", [False, True])
def test_a_part_is_read_once_for_all_its_copies(
    is_full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the disk has no room for its vectors."""
    read = list[int]()

    class FullFile(io.FileIO):
        def write(self, data: Any) -> int:
            return super().write(data[:100])

    def vectors(dataset: Dataset, number: int, of_part: Any = Dataset.vectors) -> Any:
        read.append(number)
        return of_part(dataset, number)

    monkeypatch.setattr(Dataset, "vectors", vectors)
    if is_full:
        full = partial(FullFile, tmp_path / "full", "w+")
        monkeypatch.setattr(copies, "TemporaryFile", lambda **_: full())
    seeds = [0, 1, 2, 3, 4, 5, 1, 6, 4, 2, 4, 7]
    options = {**QUICK, "shard": 3, "batch": 3}
    embed(write(tmp_path / "in", seeds), tmp_path / "out", **options)
    assert read == ([0, 1, 0, 1] if is_full else [0, 1])
    embed(tmp_path / "in", tmp_path / "right", **options, deduplicate=False)
    assert content(tmp_path / "out") == content(tmp_path / "right")
