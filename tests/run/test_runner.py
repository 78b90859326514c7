"""The runner with real workers: what vanishes, what crashes, what is refused, what is tried again."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from experiments import decoders, serial
from tests.experiments import made
from wallclock import records
from wallclock.errors import UserError
from wallclock.records import Record
from wallclock.run import runner
from wallclock.run.plan import Plan
from wallclock.run.progress import Screen
from wallclock.run.runner import Report
from wallclock.spec import Cell, ModelSpec, Recipe


def measure(cells: Sequence[Cell], plan: Plan) -> tuple[Report, str]:
    """Run cells; return the report and what was printed."""
    screen = Screen(Console(file=io.StringIO(), width=200))
    report = runner.run(cells, plan.settings, {"command": "test"}, screen)
    assert isinstance(screen.console.file, io.StringIO)
    return report, screen.console.file.getvalue()


def found(plan: Plan, experiment: str) -> dict[str, Record]:
    return {
        record.cell.label: record
        for record in records.load_experiment(plan.settings.runs, experiment)
    }


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return made.plan(tmp_path, "experiment=[serial,decoders]", "repeats=1")


def test_an_image_that_vanishes_is_a_failure_in_every_protocol_and_crashes_none(
    plan: Plan, tmp_path: Path
) -> None:
    cells = [
        *serial.cells(plan, plan.settings.experiments["serial"]),
        *decoders.cells(plan, plan.settings.experiments["decoders"]),
    ]
    chosen = ("fidelity-original", "opencv-original", "agreement-original", "pil-original")
    cells = [cell for cell in cells if cell.label in chosen]
    (tmp_path / "images" / "1.jpg").unlink()
    report, _ = measure(cells, plan)
    assert report.crashed == []
    assert report.measured == len(cells) == 6
    for experiment in ("serial", "decoders"):
        for label, record in found(plan, experiment).items():
            assert record.status == "ok", label
            expected = [{"id": "1.jpg", "stage": "read", "reason": "No such file or directory"}]
            assert record.failures == expected, label
    rows = decoders.tables(list(found(plan, "decoders").values()))[decoders.CSV]
    assert [row["n_buffers"] for row in rows] == [2, 2]
    assert serial.tables(list(found(plan, "serial").values()))


def test_when_every_image_vanished_the_run_stops_with_one_line(plan: Plan, tmp_path: Path) -> None:
    cells = decoders.cells(plan, plan.settings.experiments["decoders"])
    for path in (tmp_path / "images").iterdir():
        path.unlink()
    with pytest.raises(
        UserError, match=r"every image failed; the first, 0\.jpg, in read: No such file"
    ):
        measure(cells, plan)


def test_a_crash_is_an_error_row_with_its_last_words_and_the_rest_goes_on(plan: Plan) -> None:
    sound = decoders.cells(plan, plan.settings.experiments["decoders"])[1]
    # The protocol `profiler` without its parameters: a bug, as far as the worker can tell.
    broken = replace(sound, protocol="profiler", label="broken", params={})
    report, printed = measure([broken, sound], plan)
    assert (report.measured, [name for name, _ in report.crashed]) == (
        1,
        ["decoders/broken original #1"],
    )
    assert "Traceback" in report.crashed[0][1]
    assert "error: KeyError: 'rounds'" in printed
    after = found(plan, "decoders")
    assert (after["broken"].status, after["broken"].reason) == ("error", "KeyError: 'rounds'")
    assert after[sound.label].ok
    again, _ = measure([broken, sound], plan)
    assert (again.reused, len(again.crashed)) == (1, 1)


def test_a_request_that_a_worker_cannot_meet_stops_the_run_with_its_line(plan: Plan) -> None:
    (cell, *_) = decoders.cells(plan, plan.settings.experiments["decoders"])
    unknown = replace(cell, protocol="decode", recipe=Recipe("x", decoder="turbo"))
    with pytest.raises(UserError, match="no decoder is called 'turbo'; did you mean turbojpeg"):
        measure([unknown], plan)
    assert found(plan, "decoders") == {}


def test_a_missing_library_is_a_row_and_no_crash(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALLCLOCK_LIBTURBOJPEG", "/nonexistent/libturbojpeg.so")
    cells = decoders.cells(plan, plan.settings.experiments["decoders"])
    chosen = [cell for cell in cells if cell.label.startswith(("agreement", "turbojpeg"))]
    report, _ = measure(chosen, plan)
    assert (report.measured, report.crashed) == (2, [])
    after = found(plan, "decoders")
    assert after["turbojpeg-original"].status == "unavailable"
    (row,) = decoders.tables(list(after.values()))[decoders.CSV]
    assert row["status"] == "unavailable"
    assert "libturbojpeg is not installed: sudo apt-get install" in str(row["reason"])
    assert "unavailable" in after["agreement-original"].values["agreement"]["turbojpeg"]
    assert after["agreement-original"].values["agreement"]["opencv"]["max_abs_diff"] <= 2


def test_a_corpus_that_changed_meanwhile_is_refused(plan: Plan, tmp_path: Path) -> None:
    cells = decoders.cells(plan, plan.settings.experiments["decoders"])
    (tmp_path / "images" / "00.jpg").write_bytes((tmp_path / "images" / "0.jpg").read_bytes())
    made_again = Plan(plan.settings, lambda done, total, what: None)
    made_again.slice("original", 3)
    with pytest.raises(UserError, match="the corpus changed while the run was going on"):
        measure(cells[:1], plan)


@given(
    blocks=st.lists(
        st.tuples(st.sampled_from(["serial", "cpu"]), st.integers(0, 2), st.integers(1, 6)),
        max_size=6,
    ),
    seed=st.integers(0, 99),
)
def test_cells_are_shuffled_within_their_block_and_blocks_keep_their_order(
    blocks: list[tuple[str, int, int]], seed: int
) -> None:
    planned: list[Any] = [
        runner._Task(
            Cell(experiment, "serial", f"{index}", repeat, Recipe("x"), None, ModelSpec("m")),
            "",
            Path(),
        )
        for experiment, repeat, size in blocks
        for index in range(size)
    ]
    order = runner._shuffled(planned, seed)
    assert Counter(map(id, order)) == Counter(map(id, planned))
    names = [(plan.cell.experiment, plan.cell.repeat) for plan in order]
    assert names == [
        name
        for name in dict.fromkeys((e, r) for e, r, _ in blocks)
        for _ in range(names.count(name))
    ]
    assert runner._shuffled(planned, seed) == order


def test_a_seed_decides_the_order() -> None:
    planned = [
        runner._Task(
            Cell("serial", "serial", f"{i}", 0, Recipe("x"), None, ModelSpec("m")), "", Path()
        )
        for i in range(12)
    ]
    orders = {
        tuple(plan.cell.label for plan in runner._shuffled(planned, seed)) for seed in range(5)
    }
    assert len(orders) == 5
