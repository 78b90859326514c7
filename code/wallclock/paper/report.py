"""The report: one HTML file that opens offline, where every number links to the cell behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import serial
from wallclock.clock import STAGES
from wallclock.files import write_text
from wallclock.paper import claims, environment, evidence, figures, svg, tables
from wallclock.paper.claims import VERDICTS
from wallclock.paper.csvfile import Row, number, read_table
from wallclock.paper.evidence import Evidence
from wallclock.paper.format import factor, with_unit
from wallclock.paper.labels import SETS
from wallclock.paper.pages import render_page, segment
from wallclock.paper.rendering import NothingToDrawError, Rendering
from wallclock.paper.tables.table import TEXT, Source, Table, Value, find, shown

STEM = "report"

#: The verdict list restates table 4.
_TABLES_SHOWN = tuple(stem for stem in tables.TABLES if stem != "table-4-reproducibility")
#: Claims for a reader in a hurry, in this order.
_HEADLINES = (
    "serial-original-pil-decode-share",
    "serial-small-pil-forward-share",
    "decode-original-speedup",
    "serial-original-speedup",
    "optimized-speedup",
    "runtime-fp16-speedup",
)
_VERDICT_MEANS = {
    "held": "our number agrees with the paper’s, within the claim’s tolerance",
    "differs": "our number lies outside the claim’s tolerance",
    "not applicable": "we have a number, but of a machine that the claim is not about",
    "not run": "we have no number",
}


@dataclass(frozen=True)
class Link:
    """A number as the page shows it, and the cell that it comes from."""

    text: str
    href: str = ""
    #: Of a ratio: the cell of the denominator.
    over: str = ""


def render(tables_dir: Path, figures_dir: Path) -> Rendering:
    """Write `report.html` from the CSVs in `tables_dir` and the SVGs in `figures_dir`.

    Raises UserError if a CSV is damaged.
    """
    run = evidence.collect(tables_dir)
    if not any(csv.n_rows for csv in run.csvs):
        return Rendering(STEM, (), f"no table in {tables_dir.name}/")
    path = figures_dir / f"{STEM}.html"
    write_text(path, build(run, tables_dir, figures_dir))
    return Rendering(STEM, (path,))


def build(run: Evidence, tables_dir: Path, figures_dir: Path) -> str:
    """The page. Equal files always give equal text."""
    verdicts = _verdicts(run, tables_dir)
    by_id = {verdict["id"]: verdict for verdict in verdicts}
    counts = Counter(verdict["verdict"] for verdict in verdicts)
    return render_page(
        "report.html.jinja",
        verdicts=verdicts,
        counts=[(word, counts[word], _VERDICT_MEANS[word]) for word in VERDICTS],
        experiments=list(dict.fromkeys(verdict["experiment"] for verdict in verdicts)),
        headlines=[by_id[name] for name in _HEADLINES if name in by_id],
        bars=[bar for image_set in serial.CSVS for bar in _bar(run, image_set)],
        figures=[_figure(stem, run, figures_dir) for stem in figures.FIGURES],
        tables=[_table(stem, run, tables_dir) for stem in _TABLES_SHOWN],
        notes=_notes(verdicts),
        machine=environment.describe(evidence.about(tables_dir)),
        csvs=run.csvs,
        cited=run.cited,
    )


def _verdicts(run: Evidence, tables_dir: Path) -> list[dict[str, Any]]:
    """Every claim with its numbers linked to the cells behind them."""
    path = tables_dir / claims.CSV
    return [_verdict(run, row) for row in (read_table(path) if path.is_file() else [])]


def _verdict(run: Evidence, row: Row) -> dict[str, Any]:
    sources = run.cells_cited_by(row["csv"], row["row"], row["column"]) if row["ours"] else []
    searched = ("id", "statement", "csv", "column", "reason", "note")
    return {
        **row,
        "paper": with_unit(row["paper_value"], row["unit"]),
        "ours": _link(with_unit(row["ours"], row["unit"]), sources, run),
        "ratio": factor(row["ratio"]),
        "key": row["verdict"].replace(" ", "-"),
        "search": " ".join(row[name] for name in searched).lower(),
    }


def _link(text: str, sources: Sequence[Source], run: Evidence) -> Link:
    hrefs = [href for href in map(run.href, sources) if href]
    return Link(text, *hrefs[:2])


def _bar(run: Evidence, image_set: str) -> list[dict[str, Any]]:
    """The wall time of one image in PIL's serial recipe by stage; none if it was not measured."""
    pil = find({csv.name: csv.rows for csv in run.csvs}, serial.CSVS[image_set], decoder="pil")
    if pil is None:
        return []
    segments = []
    for stage in STAGES:
        if share := number(pil.row[f"{stage}_share"]):
            href = run.href(Source(pil.csv, pil.index, f"{stage}_share"))
            segments.append(segment(stage, share, href))
    mock = "; forward is a mock model of fixed time" if pil.row.get("weights") == "none" else ""
    about = f"on {pil.row['device']}{mock}"
    return [{"name": SETS[image_set], "segments": segments, "about": about}]


def _figure(stem: str, run: Evidence, figures_dir: Path) -> dict[str, Any]:
    output = figures.FIGURES[stem]
    figure_number = stem.split("-")[1].lstrip("0")
    source = _text(figures_dir / f"{stem}.svg")
    return {
        "id": stem,
        "number": figure_number,
        "title": output.title,
        "svg": source and svg.inline(source, f"f{figure_number}", output.title),
        "sources": [(name, run.href_of_table(name)) for name in output.sources],
        "text": _text(figures_dir / f"{stem}{output.text[0]}") if output.text else "",
    }


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _table(stem: str, run: Evidence, tables_dir: Path) -> dict[str, Any]:
    about = {"id": stem, "number": stem.split("-")[1], "title": tables.TABLES[stem].title}
    try:
        table, skipped = tables.build(stem, tables_dir), ""
    except NothingToDrawError as nothing:
        table, skipped = Table((), (), ""), str(nothing)
    columns = table.shown
    rows = [[_cell(row[column.name], column.kind, run) for column in columns] for row in table.rows]
    about |= {"caption": table.caption, "skipped": skipped}
    return {**about, "columns": columns, "rows": rows}


def _cell(value: Value, kind: str, run: Evidence) -> tuple[str, Link]:
    """Kind and value; a number is linked."""
    link = _link(shown(value.value, kind), value.sources, run)
    return "text" if kind == TEXT else "number", link


def _notes(verdicts: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Inconsistencies of the paper, each once, with the ids of the claims that it touches."""
    notes = list(dict.fromkeys(verdict["note"] for verdict in verdicts if verdict["note"]))
    # A note may be the beginning of a longer one, which then stands for both.
    longest = [note for note in notes if not any(note != n and note in n for n in notes)]
    noted = [verdict for verdict in verdicts if verdict["note"]]
    return [(note, [v["id"] for v in noted if v["note"] in note]) for note in longest]
