"""How long a run will take: the paper's figures first, this machine's own records after."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments import made
from wallclock import records
from wallclock.records import Record
from wallclock.run.estimate import Estimator, format_duration
from wallclock.spec import Recipe


def cell(n: int = 100) -> Record:
    record = made.record("serial", "serial", "pil-small_256", {}, {}, recipe=Recipe("pil"))
    return replace(record, cell=replace(record.cell, corpus=replace(record.cell.images, n=n)))


def test_more_images_take_longer(tmp_path: Path) -> None:
    estimator = Estimator(tmp_path, 2)
    few, many = cell(100).cell, cell(1_000).cell
    assert 0 < estimator.seconds(few) < estimator.seconds(many)
    assert estimator.total([few, many]) == pytest.approx(
        estimator.seconds(few) + estimator.seconds(many)
    )


def test_earlier_record_of_this_machine(tmp_path: Path) -> None:
    records.write(tmp_path / "serial" / "key", replace(cell(100), seconds=1_000.0))
    estimator = Estimator(tmp_path, 2)
    assert estimator.seconds(cell(100).cell) == pytest.approx(1_000)
    assert estimator.seconds(cell(200).cell) == pytest.approx(2_000, rel=0.01)


def test_crash_is_ignored(tmp_path: Path) -> None:
    before = Estimator(tmp_path, 2).seconds(cell().cell)
    records.write(tmp_path / "serial" / "key", replace(cell(), status="error", seconds=0.0))
    assert Estimator(tmp_path, 2).seconds(cell().cell) == before


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (89, "89 s"),
        (90, "2 min"),
        (5_399, "90 min"),
        (5_400, "1.5 h"),
        (36_000, "10.0 h"),
    ],
)
def test_format_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
