"""How long a run will take: the paper's figures first, this machine's own records after."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.experiments import made
from wallclock import records
from wallclock.records import Record
from wallclock.run import progress
from wallclock.run.progress import Estimator, format_duration
from wallclock.spec import Recipe


def cell(n: int = 100) -> Record:
    record = made.record("serial", "serial", "pil-small_256", {}, {}, recipe=Recipe("pil"))
    return replace(record, cell=replace(record.cell, corpus=replace(record.cell.images, n=n)))


def test_more_images_take_longer(tmp_path: Path) -> None:
    estimator = Estimator(tmp_path, 2)
    assert 0 < estimator.seconds(cell(100).cell) < estimator.seconds(cell(1_000).cell)


def test_earlier_record_of_this_machine(tmp_path: Path) -> None:
    records.write(tmp_path / "serial" / "key", replace(cell(100), seconds=1_000.0))
    estimator = Estimator(tmp_path, 2)
    assert estimator.seconds(cell(100).cell) == pytest.approx(1_000)
    assert estimator.seconds(cell(200).cell) == pytest.approx(2_000, rel=0.01)


def test_crash_is_ignored(tmp_path: Path) -> None:
    before = Estimator(tmp_path, 2).seconds(cell().cell)
    records.write(tmp_path / "serial" / "key", replace(cell(), status="error", seconds=0.0))
    assert Estimator(tmp_path, 2).seconds(cell().cell) == before


def test_format_duration() -> None:
    texts = {0: "0 s", 89: "89 s", 90: "2 min", 5399: "90 min", 5400: "1.5 h", 36_000: "10.0 h"}
    assert {seconds: format_duration(seconds) for seconds in texts} == texts


def test_corpus_lines_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LINE_INTERVAL_S", -1.0)
    output = io.StringIO()
    with progress.bars(Console(file=output, width=100)) as bars:
        report = progress.CorpusProgress(bars)
        for step in ("download", "validate"):
            for done in (1, 2):
                report.add_bytes(10**6 if step == "download" else 0)
                report(done, 2, step)
    texts = [line.split(",")[0] for line in output.getvalue().splitlines()]
    assert texts == [f"{step}: {n} of 2" for step in ("download", "validate") for n in (1, 2)]
    assert "MB/s" in output.getvalue().splitlines()[1]
