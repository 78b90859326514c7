"""The report: one HTML file that opens offline, and in which every number points at the cell behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from wallclock.clock import STAGES
from wallclock.files import write_text
from wallclock.paper import environment, figures, svg, tables
from wallclock.paper import evidence as evidences
from wallclock.paper.claims import VERDICTS
from wallclock.paper.csvfile import number, read_table
from wallclock.paper.evidence import Evidence
from wallclock.paper.figures.style import STAGE_STYLES, is_dark
from wallclock.paper.labels import SETS
from wallclock.paper.rendering import NothingToDrawError, Rendering
from wallclock.paper.tables.table import EMPTY, NUMBER, PERCENT, TEXT, Source, Table, find, shown

STEM = "report"

#: The pages and what they wear.
TEMPLATES = Path(__file__).parent / "report_template"
#: The verdict list restates table 4.
_TABLES_SHOWN = tuple(stem for stem in tables.TABLES if stem != "table-4-reproducibility")
#: What a reader in a hurry wants to know: claims, in this order.
_HEADLINES = (
    *(
        "serial-original-pil-decode-share",
        "serial-small-pil-forward-share",
        "decode-original-speedup",
    ),
    *("serial-original-speedup", "optimized-speedup", "runtime-fp16-speedup"),
)
_SERIAL = {"small_256": "t4-serial-stages.csv", "original": "t4-serial-stages-original.csv"}
_VERDICT_MEANS = {
    "held": "our number agrees with the paper’s, within the claim’s tolerance",
    "differs": "our number lies outside the claim’s tolerance",
    "not applicable": "we have a number, but on a machine that the claim does not speak of",
    "not run": "we have no number",
}


@dataclass(frozen=True)
class Link:
    """A number as the page shows it, and where it comes from."""

    text: str
    href: str = ""
    #: Of a ratio: the number that it was divided by.
    over: str = ""


def render(tables_dir: Path, figures_dir: Path) -> Rendering:
    """Write `report.html` from the CSVs in `tables_dir` and the SVGs in `figures_dir`.

    Raises:
        UserError: a CSV is damaged.
    """
    found = evidences.collect(tables_dir)
    if not any(csv.n_rows for csv in found.csvs):
        return Rendering(STEM, (), f"no table in {tables_dir.name}/")
    path = figures_dir / f"{STEM}.html"
    write_text(path, build(found, tables_dir, figures_dir))
    return Rendering(STEM, (path,))


def build(found: Evidence, tables_dir: Path, figures_dir: Path) -> str:
    """The page. The same files always give the same text."""
    verdicts = _verdicts(found, tables_dir)
    about = evidences.about(tables_dir)
    counts = Counter(verdict["verdict"] for verdict in verdicts)
    context: dict[str, Any] = {
        "css": Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),
        "js": Markup((TEMPLATES / "report.js").read_text(encoding="utf-8")),
        "verdicts": verdicts,
        "counts": [(word, counts[word], _VERDICT_MEANS[word]) for word in VERDICTS],
        "experiments": list(dict.fromkeys(verdict["experiment"] for verdict in verdicts)),
        "headlines": [
            verdict for name in _HEADLINES for verdict in verdicts if verdict["id"] == name
        ],
        "walls": [
            bar for image_set, csv in _SERIAL.items() for bar in _wall(found, image_set, csv)
        ],
        "figures": [_figure(stem, found, figures_dir) for stem in figures.FIGURES],
        "tables": [_table(stem, found, tables_dir) for stem in _TABLES_SHOWN],
        "notes": _notes(verdicts),
        "machine": environment.describe(about),
        "csvs": found.csvs,
    }
    # Last: what came before has said which cells it cites.
    context["cited"] = found.cited
    return jinja_environment().get_template("report.html.jinja").render(context)


def jinja_environment() -> Environment:
    """Templates beside this file; a name that is not there is an error, and text is escaped."""
    jinja = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    jinja.globals |= {"EMPTY": EMPTY}
    return jinja


def _verdicts(found: Evidence, tables_dir: Path) -> list[dict[str, Any]]:
    """Every claim with its numbers linked to the cells behind them."""
    path = tables_dir / "claims.csv"
    verdicts = []
    for row in read_table(path) if path.is_file() else []:
        ours = number(row["ours"])
        sources = found.behind(row["csv"], row["row"], row["column"]) if ours is not None else []
        ratio = number(row["ratio"])
        verdicts.append(
            {
                **row,
                "paper": _with_unit(number(row["paper_value"]), row["unit"]),
                "ours": _link(_with_unit(ours, row["unit"]), sources, found),
                "ratio": ""
                if ratio is None
                else f"{ratio:.2f}"
                if ratio >= 0.095
                else f"{ratio:.2g}",
                "key": row["verdict"].replace(" ", "-"),
                "search": " ".join(
                    [row[name] for name in ("id", "statement", "csv", "column", "reason", "note")]
                ).lower(),
            }
        )
    return verdicts


def _with_unit(value: float | None, unit: str) -> str:
    if value is None:
        return EMPTY
    if unit == "fraction":
        return shown(value, PERCENT) if value < 0.0005 else f"{100 * value:.3g} %"
    if unit == "ratio":
        return f"{value:.3g}×"
    return f"{shown(value, NUMBER)}{'/s' if unit == '1/s' else f' {unit}'}"


def _link(text: str, sources: Sequence[Source], found: Evidence) -> Link:
    hrefs = [href for href in (found.href(source) for source in sources) if href]
    return Link(text, *hrefs[:2])


def _wall(found: Evidence, image_set: str, csv: str) -> list[dict[str, Any]]:
    """The wall of one image in PIL's serial recipe, as segments; none where it was not measured."""
    row = find({csv.name: csv.rows for csv in found.csvs}, csv, decoder="pil")
    if row is None:
        return []
    segments = []
    for stage in STAGES:
        share = row.number(f"{stage}_share")
        if isinstance(share.value, float) and share.value > 0:
            fill = STAGE_STYLES[stage][0]
            segments.append(
                {
                    **{"stage": stage, "share": share.value, "text": f"{100 * share.value:.0f} %"},
                    **{"fill": fill, "ink": "#fff" if is_dark(fill) else "#1b1f24"},
                    "href": found.href(share.sources[0]),
                }
            )
    about = f"on {row.row['device']}" + (
        "; forward is a mock model of fixed time" if row.row.get("weights") == "none" else ""
    )
    return [{"name": SETS[image_set], "segments": segments, "about": about}]


def _figure(stem: str, found: Evidence, figures_dir: Path) -> dict[str, Any]:
    module = figures.FIGURES[stem]
    path = figures_dir / f"{stem}.svg"
    number_of = stem.split("-")[1].lstrip("0")
    source = figures.TEXTS.get(stem)
    text = figures_dir / f"{stem}{source[0]}" if source else None
    return {
        "id": stem,
        "number": number_of,
        "title": module.TITLE,
        "svg": svg.inline(path.read_text(encoding="utf-8"), f"f{number_of}", module.TITLE)
        if path.is_file()
        else "",
        "sources": [
            (name, found.href_of_table(name)) for name in (*module.SOURCES, *module.OPTIONAL)
        ],
        "text": text.read_text(encoding="utf-8") if text and text.is_file() else "",
    }


def _table(stem: str, found: Evidence, tables_dir: Path) -> dict[str, Any]:
    module = tables.TABLES[stem]
    about = {"id": stem, "number": stem.split("-")[1], "title": module.TITLE}
    try:
        table = tables.build(stem, tables_dir)
    except NothingToDrawError as nothing:
        return {**about, "columns": (), "rows": [], "caption": "", "skipped": str(nothing)}
    return {
        **about,
        "columns": table.shown,
        "rows": _cells(table, found),
        "caption": table.caption,
        "skipped": "",
    }


def _cells(table: Table, found: Evidence) -> list[list[tuple[str, Link]]]:
    """Each row as (kind, value) by column; numbers linked."""
    return [
        [
            (
                "text" if column.kind == TEXT else "number",
                _link(shown(row[column.name].value, column.kind), row[column.name].sources, found),
            )
            for column in table.shown
        ]
        for row in table.rows
    ]


def _notes(verdicts: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """What the paper says that cannot be so, each once, with the claims that it touches."""
    notes = list(dict.fromkeys(verdict["note"] for verdict in verdicts if verdict["note"]))
    # A note may be the beginning of a longer one.
    whole = [note for note in notes if not any(note != other and note in other for other in notes)]
    return [
        (
            note,
            [verdict["id"] for verdict in verdicts if verdict["note"] and verdict["note"] in note],
        )
        for note in whole
    ]
