"""From records to all outputs: what is written, kept and removed; nothing there to publish."""

import shutil
from pathlib import Path

import pytest

from paper import claims, diagnosis
from paper.__main__ import main
from paper.figures import FIGURES
from paper.publish import publish
from paper.tables import TABLES
from tests.fixture_run import fixture_runs

CSV = "cpu-baseline-stages.csv"


def write_records(runs: Path) -> None:
    """Records of the experiment `cpu`, as a run leaves them."""
    shutil.copytree(fixture_runs() / "cpu", runs / "cpu")


def test_every_output_has_files_or_a_reason(tmp_path: Path) -> None:
    write_records(tmp_path / "runs")
    published = publish(tmp_path, tmp_path / "figures")
    assert [path.name for path in published.tables] == [CSV]
    outputs = {output.stem: output for output in published.renderings}
    pages = ["diagnosis", "report"]
    assert list(outputs) == [*FIGURES, *TABLES, *pages]
    written = {stem for stem, output in outputs.items() if output.paths}
    assert written == {"table-2-end-to-end", "table-4-reproducibility", "report"}
    assert all(output.paths or output.skipped for output in outputs.values())
    assert len(published.verdicts) == len(claims.load(claims.CLAIMS))
    present = {path.name for path in (tmp_path / "figures").iterdir()}
    assert present == {path.name for output in outputs.values() for path in output.paths}


def test_run_redraws_only_what_it_touches(tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    write_records(tmp_path / "runs")
    publish(tmp_path, figures)
    table, report = figures / "table-2-end-to-end.md", figures / "report.html"
    drawing = figures / "fig-03-decoder-comparison.svg"
    for path in (table, report):
        path.write_text("old", encoding="utf-8")
    drawing.write_text("<svg></svg>", encoding="utf-8")
    renderings = publish(tmp_path, figures, ran=["workers"]).renderings
    assert table.read_text(encoding="utf-8") == "old"
    assert report.read_text(encoding="utf-8") != "old"
    kept = next(r for r in renderings if r.stem == "table-2-end-to-end")
    assert {path.suffix for path in kept.paths} == {".csv", ".md", ".tex"}
    # The run's own experiment, a table that changed, and an output that is absent.
    publish(tmp_path, figures, ran=["cpu"])
    assert table.read_text(encoding="utf-8") != "old"
    table.write_text("old", encoding="utf-8")
    (tmp_path / CSV).unlink()
    publish(tmp_path, figures, ran=["workers"])
    assert table.read_text(encoding="utf-8") != "old"
    drawing.write_text("<svg></svg>", encoding="utf-8")
    publish(tmp_path, figures, ran=["decoders"])
    assert not drawing.exists()
    before = {path.name: path.read_bytes() for path in figures.iterdir()}
    publish(tmp_path, figures)
    assert {path.name: path.read_bytes() for path in figures.iterdir()} == before


def test_outputs_without_records_are_removed(tmp_path: Path) -> None:
    write_records(tmp_path / "runs")
    pipeline = "fig-07-pipeline-mermaid"
    stale = (f"{pipeline}.mmd", f"{pipeline}.png", "table-1-serialization.tex")
    kept = ("fig-99-of-mine.png", "notes.md", ".gitkeep")
    (tmp_path / "figures").mkdir()
    for name in (*stale, *kept):
        (tmp_path / "figures" / name).touch()
    publish(tmp_path, tmp_path / "figures")
    present = {path.name for path in (tmp_path / "figures").iterdir()}
    assert not present & set(stale)
    assert set(kept) <= present


def test_tables_and_figures_in_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page and a table may have the same name but for the suffix, as those of a diagnosis."""
    write_records(tmp_path / "runs")
    tables = publish(tmp_path, tmp_path / "figures").tables
    monkeypatch.setattr(diagnosis, "STEM", tables[0].stem)
    assert publish(tmp_path, tmp_path).tables == tables
    assert all(path.is_file() and path.with_suffix(".meta.json").is_file() for path in tables)


def test_figures_without_records_leave_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of a reference run, whose records are packed."""
    csv = tmp_path / "decoders.csv"
    csv.touch()
    assert main(["figures", "--out", str(tmp_path), "--figures", str(tmp_path / "figures")]) == 1
    assert "no records under" in capsys.readouterr().err
    assert csv.exists()


def test_commands_figures_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
