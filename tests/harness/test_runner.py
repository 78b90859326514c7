"""The runner with real workers: missing files, crashes, refused requests, retries, order."""

import io
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from experiments.decoders import cells as decoders
from harness import provenance, records, runner
from harness.plan import Plan
from harness.records import Record
from harness.runner import Report
from harness.spec import Cell, Recipe
from tests.experiments import made
from wallclock.errors import UserError
from wallclock.progress import bars
from wallclock.recipe import ModelSpec


def measure(cells: Sequence[Cell], plan: Plan) -> tuple[Report, str]:
    """Run cells; return the report and what was printed."""
    output, report = io.StringIO(), Report()
    with bars(Console(file=output, width=200)) as progress:
        run = runner.Runner(plan.settings, {"command": "test"}, report, progress)
        run.add(cells)
        run.announce([])
        for name in dict.fromkeys(cell.experiment for cell in cells):
            run.measure(name)
    return report, output.getvalue()


def by_label(plan: Plan, experiment: str) -> dict[str, Record]:
    recorded = records.load_experiment(plan.settings.runs, experiment)
    return {record.cell.label: record for record in recorded}


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return made.plan(tmp_path, "experiment=[serial,decoders]", "repeats=1")


@pytest.fixture
def decoder_cells(plan: Plan) -> list[Cell]:
    return decoders.cells(plan, plan.settings.experiments["decoders"])


def test_all_images_vanished(plan: Plan, decoder_cells: list[Cell], tmp_path: Path) -> None:
    for path in (tmp_path / "images").iterdir():
        path.unlink()
    line = r"every image failed; the first, 0\.jpg, in read: No such file"
    with pytest.raises(UserError, match=line):
        measure(decoder_cells[:1], plan)


@pytest.mark.parametrize(
    ("worker", "reason"),
    [
        ("echo warning >&2; kill -9 $$", "killed by SIGKILL (out of memory?)"),
        ("sleep 600 & kill -SEGV $$", "killed by SIGSEGV"),
        ("echo working; sleep 600", "stopped: it did nothing for 0 s"),
        ("echo Traceback >&2; printf 'No  luck\\033' >&2; exit 3", r"No luck\x1b"),
        ("exit 2", "ended with status 2"),
    ],
)
def test_a_worker_that_never_ends_well_is_tried_twice(
    worker: str,
    reason: str,
    plan: Plan,
    decoder_cells: list[Cell],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho once >>{tmp_path}/tries\n{worker}\n", encoding="ascii")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(runner, "_SILENT_S", 0.0)
    monkeypatch.setattr(runner, "_SLOWER", 0.01)
    report, _ = measure(decoder_cells[:1], plan)
    assert list(report.crashed.values()) == [reason]
    assert (report.measured, report.recovered) == (0, {})
    assert (tmp_path / "tries").read_text("ascii") == "once\nonce\n"
    (record,) = by_label(plan, "decoders").values()
    assert (record.status, record.reason) == ("error", reason)
    (errors,) = plan.settings.runs.glob("decoders/*/stderr.txt")
    assert ("Traceback" in errors.read_text("utf-8")) == ("Traceback" in worker)


def test_refused_by_a_worker(plan: Plan, decoder_cells: list[Cell]) -> None:
    unknown = replace(decoder_cells[0], protocol="decode", recipe=Recipe("x", decoder="turbo"))
    with pytest.raises(UserError, match="is called 'turbo'; did you mean turbojpeg"):
        measure([unknown], plan)
    assert by_label(plan, "decoders") == {}


def test_missing_library_is_a_row(
    plan: Plan, decoder_cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALLCLOCK_LIBTURBOJPEG", "/nonexistent/libturbojpeg.so")
    cells = [
        cell for cell in decoder_cells if cell.label in ("agreement-original", "turbojpeg-original")
    ]
    report, _ = measure(cells, plan)
    assert report.summary() == "1 cells measured, 0 reused, 1 unavailable"
    again, printed = measure(cells, plan)
    assert again.summary() == "0 cells measured, 1 reused, 1 unavailable", "it is tried again"
    assert "1 of them again: unavailable before\n" in printed
    after = by_label(plan, "decoders")
    assert after["turbojpeg-original"].status == "unavailable"
    (row,) = decoders.tables(list(after.values()))[decoders.CSV]
    assert row["status"] == "unavailable"
    assert "libturbojpeg is not installed: apt-get install" in str(row["reason"])
    agreement = after["agreement-original"].values["agreement"]
    assert "unavailable" in agreement["turbojpeg"]
    assert agreement["opencv"]["max_abs_diff"] <= 2


def test_an_upgrade_of_the_kernel_keeps_what_is_measured(
    plan: Plan, decoder_cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of the driver. Other versions of a library measure again, and the run says so."""
    cells = [cell for cell in decoder_cells if cell.label == "pil-original"][:1]
    gpu = {"name": "Tesla T4", "memory_gib": 15, "driver": "535.1"}
    before = provenance.machine() | {"gpus": [gpu], "kernel": "5.15"}
    monkeypatch.setattr(provenance, "machine", lambda: before)
    assert measure(cells, plan)[0].measured == 1
    after = before | {"gpus": [gpu | {"driver": "535.2"}], "kernel": "6.8"}
    monkeypatch.setattr(provenance, "machine", lambda: after)
    assert measure(cells, plan)[0].reused == 1
    versions = provenance.versions() | {"pillow": "1.0"}
    monkeypatch.setattr(provenance, "versions", lambda: versions)
    report, printed = measure(cells, plan)
    assert report.measured == 1
    assert "1 of them again: other versions than before\n" in printed


def test_changed_corpus_is_refused(plan: Plan, decoder_cells: list[Cell], tmp_path: Path) -> None:
    (tmp_path / "images" / "00.jpg").write_bytes((tmp_path / "images" / "0.jpg").read_bytes())
    Plan(plan.settings, lambda done, total, step: None).slice("original", 3)
    with pytest.raises(UserError, match="the corpus changed during the run"):
        measure(decoder_cells[:1], plan)


def tasks(blocks: Sequence[tuple[str, int, int]]) -> list[runner._Task]:
    recipe, model = Recipe("x"), ModelSpec("m")
    return [
        runner._Task(Cell(experiment, "serial", f"{i}", repeat, recipe, None, model), Path(), {})
        for experiment, repeat, size in blocks
        for i in range(size)
    ]


@given(
    blocks=st.lists(
        st.tuples(st.sampled_from(["serial", "cpu"]), st.integers(0, 2), st.integers(1, 6)),
        max_size=6,
    ),
    seed=st.integers(0, 99),
)
def test_shuffled_within_blocks(blocks: list[tuple[str, int, int]], seed: int) -> None:
    planned = tasks(blocks)
    order = runner._shuffled(planned, seed)
    assert Counter(map(id, order)) == Counter(map(id, planned))
    names = [(task.cell.experiment, task.cell.repeat) for task in order]
    order_of_blocks = dict.fromkeys(block[:2] for block in blocks)
    assert names == [name for name in order_of_blocks for _ in range(names.count(name))]
    assert runner._shuffled(planned, seed) == order
