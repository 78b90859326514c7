"""From records to all outputs: what is written and what is removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from wallclock import records
from wallclock.clock import STAGES
from wallclock.paper.__main__ import main
from wallclock.paper.figures import FIGURES
from wallclock.paper.perfetto import TRACES
from wallclock.paper.publish import publish
from wallclock.paper.tables import TABLES
from wallclock.records import Record
from wallclock.spec import Cell, ModelSpec, Recipe, Slice

CSV = "cpu-baseline-stages.csv"


def write_records(runs: Path) -> None:
    """Two repeats of experiment `cpu`, as a run would leave them."""
    recipe, corpus = Recipe("cpu", batch_size=1), Slice("synthetic", "small_256", 8, "cd" * 32, "")
    environment = {
        **{
            "machine": {
                "cpu": "Some CPU",
                "cores": 2,
                "memory_gib": 8,
                "gpus": [],
                "system": "Linux",
                "python": "3.11",
            }
        },
        **{
            "versions": {"numpy": "2.4.6"},
            "code": "ab" * 32,
            "command": "python code/main.py --experiment cpu",
        },
        "before": {"git": {"commit": "6246b18"}},
    }
    keys = []
    for repeat, factor in enumerate((1.0, 1.1)):
        cell = Cell(
            "cpu", "serial", "cpu-small_256", repeat, recipe, corpus, ModelSpec("dinov2-small")
        )
        samples = {
            name: [int(1e6 * factor * (900 if name == "forward" else 1))] * 8 for name in STAGES
        }
        samples["wall"] = [sum(sum(found) for found in samples.values())]
        values = {
            "n_embedded": 8,
            "weights_digest": "ef" * 32,
            "median_kb": 7.4,
            "median_megapixels": 0.05,
        }
        keys.append(records.key_of(cell, {}))
        record = Record(cell, samples=samples, values=values, environment=environment, seconds=1.0)
        records.write(records.directory(runs, cell, keys[-1]), record)
    records.write_index(runs, "cpu", keys)


# --- publishing ---------------------------------------------------------------------------------


def test_publishing_says_what_became_of_every_output(tmp_path: Path) -> None:
    write_records(tmp_path / "runs")
    published = publish(tmp_path, tmp_path / "figures")
    assert [path.name for path in published.tables] == [CSV]
    assert [each.stem for each in published.renderings] == [
        *(*FIGURES, *TABLES, *TRACES),
        *("trace-forward", "diagnosis", "report"),
    ]
    made = {each.stem for each in published.renderings if each.paths}
    assert made == {"table-2-end-to-end", "table-4-reproducibility", "report"}
    assert all(each.paths or each.skipped for each in published.renderings)
    assert len(published.verdicts) == 50
    present = {path.name for path in (tmp_path / "figures").iterdir()}
    assert present == {path.name for each in published.renderings for path in each.paths}


def test_what_nothing_backs_any_more_is_removed(tmp_path: Path) -> None:
    write_records(tmp_path / "runs")
    stale = (
        *("fig-07-pipeline.mmd", "fig-07-pipeline.png", "table-1-serialization.tex"),
        "fig-06-timeline-baseline.trace.json",
    )
    kept = ("fig-99-of-mine.png", "notes.md", ".gitkeep")
    (tmp_path / "figures").mkdir()
    for name in (*stale, *kept):
        (tmp_path / "figures" / name).touch()
    publish(tmp_path, tmp_path / "figures")
    present = {path.name for path in (tmp_path / "figures").iterdir()}
    assert not present & set(stale)
    assert set(kept) <= present


# --- the command line ---------------------------------------------------------------------------


def test_figures_and_report_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_records(tmp_path / "runs")
    folders = ["--out", str(tmp_path), "--figures", str(tmp_path / "figures")]
    assert main(["figures", *folders]) == 0
    printed = capsys.readouterr().out
    assert "table-2-end-to-end: table-2-end-to-end.csv, table-2-end-to-end.md" in printed
    assert "fig-02-batch-sweep: not made: no batch-sweep.csv" in printed
    report = tmp_path / "figures" / "report.html"
    before = report.read_bytes()
    report.unlink()
    assert main(["report", *folders]) == 0
    assert report.read_bytes() == before
    assert capsys.readouterr().out.strip() == str(report)


def test_no_report_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--out", str(tmp_path), "--figures", str(tmp_path / "figures")]) == 1
    assert "make quick" in capsys.readouterr().err
