"""How long a run will take: the paper's figures first, this machine's own records after."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from experiments import contents
from experiments.frontier import cells as frontier
from harness import records
from harness.engines import third_party
from harness.progress import CellProgress, Estimator
from harness.records import Record
from harness.spec import Recipe
from paper import settings
from tests.conftest import ROOT
from tests.experiments import made
from wallclock import machine, progress
from wallclock.progress import format_duration


def cell(n: int = 100) -> Record:
    record = made.record("serial", "serial", "pil-small_256", {}, {}, recipe=Recipe("pil"))
    return replace(record, cell=replace(record.cell, corpus=replace(record.cell.images, n=n)))


def test_earlier_record_of_this_machine(tmp_path: Path) -> None:
    records.write(tmp_path / "serial" / "key", replace(cell(100), seconds=1_000.0))
    estimator = Estimator(tmp_path, 2)
    assert estimator.seconds(cell(100).cell) == pytest.approx(1_000)
    assert estimator.seconds(cell(200).cell) == pytest.approx(2_000, rel=0.01)


def test_loading_in_more_and_more_processes() -> None:
    timed = made.record("diagnose", "contention", "now", {}, {"seconds": 0.5}).cell
    estimates = [Estimator(Path("/nowhere"), cores).seconds(timed) for cores in (2, 16)]
    assert estimates == [5 + 4 * 0.5, 5 + 7 * 0.5]


def test_crash_is_ignored(tmp_path: Path) -> None:
    before = Estimator(tmp_path, 2).seconds(cell().cell)
    records.write(tmp_path / "serial" / "key", replace(cell(), status="error", seconds=0.0))
    assert Estimator(tmp_path, 2).seconds(cell().cell) == before


def test_format_duration() -> None:
    texts = {0: "0 s", 89: "89 s", 90: "2 min", 5399: "90 min", 5400: "1.5 h", 36_000: "10.0 h"}
    assert {seconds: format_duration(seconds) for seconds in texts} == texts


def test_the_rate_of_slow_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two images in 40 seconds; after the first ones there is no rate."""
    now = [0.0]
    monkeypatch.setattr("wallclock.progress.time.monotonic", lambda: now[0])
    output = io.StringIO()
    console = Console(file=output, width=100, get_time=lambda: now[0])
    with progress.bars(console) as bars:
        report = progress.CorpusProgress(bars)
        for done in (2, 4, 6):
            now[0] += 40
            report(done, 10, "embedding")
    rest = [", 0.05 images/s · 2 min left", ", 0.05 images/s · 80 s left"]
    expected = [
        f"embedding: {n} of 10{note}" for n, note in zip((2, 4, 6), ("", *rest), strict=True)
    ]
    assert output.getvalue().splitlines() == expected


def test_without_a_terminal_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("harness.progress.time.monotonic", lambda: now[0])
    output = io.StringIO()
    with progress.bars(Console(file=output, width=100)) as bars:
        cells = CellProgress(bars)
        for _ in range(20):
            cells.add(9.0)
        for number in range(20):
            cells.start(f"cell {number}")
            now[0] += 10
            if number == 5:
                cells.note("error: KeyError")
            cells.finish("ok", 9.0)
    assert cells.seconds_left == 0
    numbers = [line.partition("/")[0] for line in output.getvalue().splitlines()]
    assert numbers == ["[4", "[5", "[10", "[14", "[18"]


def on_a_t4(words: str) -> dict[str, tuple[int, float]]:
    """Experiment → its cells and minutes on the paper's machine, for a command line."""
    chosen = settings.load(settings.translate(f"{words} corpus=abo device=cuda".split()))
    plan, estimator = made.AboPlan(chosen, lambda *_: None), Estimator(Path("/nowhere"), 16)
    grids = {
        name: contents.load(name).cells(plan, options)
        for name, options in chosen.experiments.items()
    }
    options = chosen.experiments["frontier"]
    grids["frontier"] += frontier.expected_second_round(plan, options)
    return {
        name: (len(grid), sum(map(estimator.seconds, grid)) / 60) for name, grid in grids.items()
    }


def estimates() -> list[str]:
    """The rows of docs/experiments.md: minutes by default, then of the long run.

    What is computed has no cells, and takes no time.
    """
    command = "--n 100000 --experiment all"
    default, long = on_a_t4(command), on_a_t4(f"{command} profile=long repeats=5")
    rows = [
        f"{name} | {minutes:.1f} | {long[name][1]:.1f}"
        for name, (cells, minutes) in default.items()
        if cells
    ]
    sums = [sum(minutes for _, minutes in run.values()) for run in (default, long)]
    return [*rows, "all | {:.0f} | {:.0f}".format(*sums)]


@pytest.mark.slow
def test_default_run_ends_in_100_minutes_on_a_t4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(third_party, "is_installed", lambda name: True)
    monkeypatch.setattr(machine, "gpus", lambda: [{"name": "Tesla T4"}])
    expected = estimates()
    assert int(expected[-1].split(" | ")[1]) <= 100
    row = r"^\| (\w+ \| [\d.]+ \| [\d.]+) \|"
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    assert re.findall(row, text, flags=re.MULTILINE) == expected


def test_a_run_that_takes_longer_corrects_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("harness.progress.time.monotonic", lambda: now[0])
    output = io.StringIO()
    with progress.bars(Console(file=output, width=100, force_terminal=True)) as bars:
        cells = CellProgress(bars)
        for _ in range(10):
            cells.add(10.0)
        for number in range(10):
            cells.start(f"cell {number}")
            now[0] += 18 if number < 5 else 60
            cells.finish("ok", 10.0)
    said = re.findall(r"\[\d+/10\] .* as long .*", output.getvalue())
    assert said == [
        "[2/10] cell 1: takes 1.8 times as long as announced; about 2 min left",
        "[7/10] cell 6: takes 3.0 times as long as announced; about 2 min left",
    ]
