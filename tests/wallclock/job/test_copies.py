"""Whose vector a row gets, where images have the same bytes, or an earlier dataset has them."""

import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import making
from tests.wallclock.job.conftest import QUICK, Content, content
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


@pytest.mark.parametrize("options", [{}, {"batch": 3}, {"deduplicate": False}])
def test_copies_between_new_images(options: dict[str, Any], tmp_path: Path) -> None:
    """Those of an earlier dataset are not decoded: they come behind the others of their batch."""
    write(tmp_path / "first", range(20, 30))
    embed(tmp_path / "first", tmp_path / "earlier", **{**QUICK, **options})
    seeds = [1, 20, 2, 21, 22, 3, 23, 4, 5, 6, 24, 25, 26, 27, 7, 28]
    folder = write(tmp_path / "in", seeds)
    for path in folder.iterdir():
        path.rename(path.with_stem(f"new-{path.stem}"))
    reuse = {"reuse": str(tmp_path / "earlier"), **QUICK, **options}
    tally = embed(folder, tmp_path / "out", **reuse).tally
    assert tally.copied == 9
    assert content(tmp_path / "out") == as_new(folder, tmp_path, options)


def as_new(folder: Path, base: Path, options: dict[str, Any]) -> Content:
    embed(folder, base / "right", **{**QUICK, **options})
    return content(base / "right")


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


def test_without_deduplication_a_late_copy_is_embedded(tmp_path: Path) -> None:
    """Also beside an earlier dataset; its first image was taken long before the copy is loaded."""
    write(tmp_path / "first", range(50, 53))
    options: dict[str, Any] = {**QUICK, "batch": 1, "shard": 100, "workers": 1}
    embed(tmp_path / "first", tmp_path / "earlier", **options)
    folder = write(tmp_path / "in", [*range(40), 0, 1, 2])
    right = embed(folder, tmp_path / "right", **options).out
    more: dict[str, Any] = {"reuse": str(tmp_path / "earlier"), "deduplicate": False}
    tally = embed(folder, tmp_path / "out", **options, **more).tally
    assert tally.copied == 0
    assert content(tmp_path / "out") == content(right)


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
