"""A part in a bucket: of several writers, late or at once, one wins and nothing is lost."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.wallclock.job.test_s3_out import names
from wallclock.job.dataset import Dataset
from wallclock.job.part import Part
from wallclock.job.stores.s3 import S3


def part(n: int, value: float) -> Part:
    """n rows with this value, and a failure that names it."""
    rows: dict[str, Any] = {name: [f"{value:g}"] * n for name in ("id", "sha256", "version")}
    failure = {"id": "f", "stage": "read", "reason": f"{value:g}"}
    rows |= {"width": [1] * n, "height": [1] * n}
    return Part(rows, np.full((n, 4), value, "f4"), [failure])


def of_one_attempt(dataset: Dataset, number: int) -> str:
    """Which of the attempts a part is."""
    attempts = {*dataset.rows(number)["id"].to_pylist(), dataset.failures(number)[0]["reason"]}
    attempts |= {f"{value:g}" for value in np.unique(dataset.vectors(number))}
    (attempt,) = attempts
    return str(attempt)


def test_of_two_committers_one_wins(bucket: str) -> None:
    both = [Dataset(S3.named(bucket)) for _ in range(2)]
    for number in range(2):
        barrier = threading.Barrier(2)

        def commit(value: int, number: int = number, barrier: Any = barrier) -> None:
            barrier.wait()
            both[value].commit(number, part(2, value))

        with ThreadPoolExecutor(2) as pool:
            [*pool.map(commit, range(2))]
        assert of_one_attempt(both[0], number) in ("0", "1")
        assert len(names(bucket)) == (number + 1) * 3


@pytest.mark.parametrize("late", [False, True])
def test_what_may_still_be_committed_is_kept(
    late: bool, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next job starts, and with `late` commits the part, while an actor is about to."""
    dataset, call = Dataset(S3.named(bucket)), S3._call

    def slow(self: S3, action: str, name: str = "", **parameters: Any) -> Any:
        if name == "part-00000.parquet" and action == "put_object":
            monkeypatch.setattr(S3, "_call", call)
            dataset.store.remove_leftovers()
            if late:
                dataset.commit(0, part(1, 7))
                dataset.store.remove_leftovers()
        return call(self, action, name, **parameters)

    monkeypatch.setattr(S3, "_call", slow)
    dataset.commit(0, part(1, 5))
    assert of_one_attempt(dataset, 0) == ("7" if late else "5")
    assert len(names(bucket)) == 3


def test_a_commit_whose_answer_is_lost(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client sends it again and is refused: it was committed."""
    dataset, call = Dataset(S3.named(bucket)), S3._call

    def twice(self: S3, action: str, name: str = "", **parameters: Any) -> Any:
        if action == "put_object":
            call(self, action, name, **parameters)
        return call(self, action, name, **parameters)

    monkeypatch.setattr(S3, "_call", twice)
    dataset.commit(0, part(1, 5))
    assert of_one_attempt(dataset, 0) == "5"


def test_two_writers_of_one_part(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No change is lost where both replace it at once."""
    both, meet, commit = (
        [Dataset(S3.named(bucket)) for _ in range(2)],
        threading.Barrier(2),
        S3.commit,
    )
    tags = list[str]()

    def together(self: S3, staged: Path, row: str, tag: str = "") -> bool:
        tags.append(tag)
        if len(tags) <= 2:
            meet.wait()
        return commit(self, staged, row, tag)

    def changed(value: int) -> Part:
        return replace(part(1, value), rows={**part(1, value).rows, "id": [f"{value}"]})

    old = part(2, 7)
    both[0].commit(0, replace(old, rows={**old.rows, "id": ["0", "1"]}, failures=[]))
    monkeypatch.setattr(S3, "commit", together)
    with ThreadPoolExecutor(2) as pool:
        [*pool.map(lambda at: both[at].replace(0, pa.array([f"{at}"]), changed(at)), range(2))]
    assert tags[0] == tags[1] != tags[2]
    rows = zip(both[0].rows(0)["id"].to_pylist(), both[0].vectors(0)[:, 0], strict=True)
    assert sorted(rows) == [("0", 0), ("1", 1)]
    both[0].store.remove_leftovers()
    assert len(names(bucket)) == 4
