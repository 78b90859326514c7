"""The report: one HTML file that opens offline, where every number links to the cell behind it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from markupsafe import Markup, escape

from experiments import contents
from experiments.serial import cells as serial
from harness.drawing import format as formats
from harness.drawing import labels
from harness.drawing.rendering import NothingToDrawError, Rendering
from harness.table import Row, cell_of, read_columns, read_table
from paper import claims, figures, tables
from paper.cited import select
from paper.pages import render_page, segment
from paper.provenance_files import read_provenance
from paper.tables.table import Source, Table, find, format_value
from wallclock.clock import STAGES
from wallclock.files import write_text

STEM = "report"

#: Rows of a table of spans that the report shows; the rest is in the file.
_MAX_ROWS = 40
#: A table with more columns than this is shown transposed.
_MAX_COLUMNS = 13

#: What in a figure's SVG would clash on a page: the prolog, matplotlib's metadata, its style rule
#: (which would apply to the whole page), its comments.
_UNWANTED = re.compile(
    r"\A.*?(?=<svg\b)|\s*(?:<metadata>.*?</metadata>"
    r"|<defs>\s*<style\b.*?</style>\s*</defs>|<!--.*?-->)",
    re.DOTALL,
)
#: Of its opening tag: the size and the namespaces.
_ATTRIBUTES = re.compile(r'\s(?:(?:width|height)="[^"]*pt"|xmlns(?::xlink)?="[^"]*")')
_REFERENCE = re.compile(r'(?:xlink:)?(\bid="|href="#|url\(#)')

T = TypeVar("T")


@dataclass(frozen=True)
class Csv:
    """One CSV as the report shows it: every cell has an address that a number can link to."""

    name: str
    anchor: str
    columns: list[str]
    rows: list[dict[str, Any]]
    n_rows: int
    experiment: str

    @property
    def transposed(self) -> bool:
        """Whether it is shown with a line for each column and a column for each row."""
        return len(self.columns) > _MAX_COLUMNS and self.n_rows <= _MAX_COLUMNS

    def row_anchor(self, index: int) -> str:
        """The address of a row, counted from 1."""
        return f"{self.anchor}-row-{index}"

    def cell_anchor(self, index: int, column: str) -> str:
        """The address of a cell."""
        return f"{self.row_anchor(index)}-{column}"


@dataclass
class Evidence:
    """The CSVs of a run by name, in the order of the experiments; the cells that are linked to."""

    csvs: dict[str, Csv]
    cited: set[str] = field(default_factory=set)

    def hrefs(self, sources: Iterable[Source]) -> list[str]:
        """The links to cells; to the table, where the row is not shown; to absent ones none."""
        links = []
        for source in sources:
            csv = self.csvs.get(source.csv)
            if csv is None or source.row > csv.n_rows or source.column not in csv.columns:
                continue
            anchor = csv.anchor
            if source.row <= len(csv.rows):
                anchor = csv.cell_anchor(source.row, source.column)
                self.cited.add(anchor)
            links.append(f"#{anchor}")
        return links

    def cells_cited_by(self, verdict: Row) -> Iterator[Source]:
        """The cells that a verdict names, two of them divided by ` / `; absent ones not."""
        if verdict["ours"] is None:
            return
        names, columns = verdict["csv"].split(" / "), verdict["column"].split(" / ")
        for index, selector in enumerate(verdict["row"].split(" / ")):
            csv = self.csvs.get(names[min(index, len(names) - 1)])
            if csv is None:
                continue
            row = select(csv.rows, selector)
            if row is not None:
                column = columns[min(index, len(columns) - 1)]
                yield Source(csv.name, csv.rows.index(dict(row)) + 1, column)


def collect(tables_dir: Path) -> Evidence:
    """Read every CSV of a run but the verdicts, which the report lists themselves.

    Raises UserError if one is damaged.
    """
    names = (*contents.ORDER, *contents.ON_REQUEST)
    owners = {csv: name for name in names for csv in contents.load(name).TABLES}
    paths = {path.name: path for path in sorted(tables_dir.glob("*.csv"))}
    csvs = {}
    for name in dict.fromkeys((*owners, *paths)):
        if name in paths and name != claims.CSV:
            rows, columns = read_table(paths[name]), read_columns(paths[name])
            csvs[name] = Csv(
                name,
                anchor=f"csv-{paths[name].stem}",
                columns=columns,
                rows=rows if "status" in columns else rows[:_MAX_ROWS],
                n_rows=len(rows),
                experiment=owners.get(name, ""),
            )
    return Evidence(csvs)


def render(tables_dir: Path, figures_dir: Path) -> Rendering:
    """Write `report.html` from the CSVs in `tables_dir` and the SVGs in `figures_dir`.

    Equal files always give equal text. Raises UserError if a CSV is damaged.
    """
    run = collect(tables_dir)
    if not any(csv.n_rows for csv in run.csvs.values()):
        return Rendering(STEM, (), f"no table in {tables_dir.name}/")
    path = tables_dir / claims.CSV
    verdicts = claims.annotated(read_table(path)) if path.is_file() else []
    counts = Counter(verdict["verdict"] for verdict in verdicts)
    judged = [verdict for verdict in verdicts if verdict["verdict"] in claims.JUDGED]
    metas = _metas(tables_dir)
    corpora = _corpora(metas)
    # Table 4 is the list of verdicts.
    stems = [stem for stem in tables.TABLES if stem != "table-4-reproducibility"]

    def text_of(name: str) -> str:
        return _text(figures_dir / name)

    page = render_page(
        "report.html.jinja",
        run=run,
        verdicts=verdicts,
        counts=[(word, counts[word], means) for word, means in claims.VERDICTS.items()],
        judged=judged,
        unjudged=[verdict for verdict in verdicts if verdict not in judged],
        headlines=[each for each in judged if each["role"] == claims.HEADLINE],
        bars=list(_bars(run)),
        figures=figures.FIGURES,
        drawn=[stem for stem in figures.FIGURES if text_of(f"{stem}.svg")],
        text_of=text_of,
        tables=[(stem, tables.TABLES[stem].title, *_table(stem, tables_dir)) for stem in stems],
        notes=_notes(verdicts),
        metas=metas,
        corpora=unique_items(corpora),
        image_sets=_image_counts(corpora),
        versions=_versions(metas),
        formats=formats,
        labels=labels,
        inline=inline,
        unique_items=unique_items,
        format_value=format_value,
        cell_of=cell_of,
    )
    write_text(figures_dir / f"{STEM}.html", page)
    return Rendering(STEM, (figures_dir / f"{STEM}.html",))


def _metas(tables_dir: Path) -> list[dict[str, Any]]:
    """What the tables were made on; those of benchmarks and examples have no corpus."""
    return [meta for meta in read_provenance(tables_dir).values() if "corpora" in meta]


def _corpora(metas: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Their corpora, without the storage: one that is read from a pack holds the same images."""
    return [
        {name: value for name, value in corpus.items() if name != "storage"}
        for meta in metas
        for corpus in meta["corpora"]
    ]


def _image_counts(corpora: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], set[int]]:
    """Kind and image set → the numbers of images that were measured."""
    counts: dict[tuple[str, str], set[int]] = {}
    for corpus in corpora:
        counts.setdefault((corpus["kind"], corpus["image_set"]), set()).add(corpus["n"])
    return counts


def inline(text: str, prefix: str, label: str) -> Markup:
    """A figure's SVG with a label for screen readers, ids unique on the page, and no size."""
    opening, rest = _UNWANTED.sub("", text).split(">", 1)
    opening = _ATTRIBUTES.sub("", opening)
    drawing = f'{opening} role="img" aria-label="{escape(label)}">{rest}'
    return Markup(_REFERENCE.sub(rf"\g<1>{prefix}-", drawing).strip())


def unique_items(items: Iterable[T]) -> list[T]:
    """Each item once, in order of appearance; items may be unhashable."""
    unique: list[T] = []
    for item in items:
        if item not in unique:
            unique.append(item)
    return unique


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _bars(run: Evidence) -> Iterator[dict[str, Any]]:
    """The wall time of one image in PIL's serial recipe by stage, for each set measured."""
    rows = {name: csv.rows for name, csv in run.csvs.items()}
    for image_set, csv in serial.CSVS.items():
        pil = find(rows, csv, decoder="pil")
        if pil is None:
            continue
        segments = []
        for stage in STAGES:
            share = pil.row[f"{stage}_share"]
            if share:
                (href,) = run.hrefs([Source(csv, pil.index, f"{stage}_share")])
                segments.append(segment(stage, share, href))
        yield {"name": labels.SETS[image_set], "segments": segments, "row": pil.row}


def _table(stem: str, tables_dir: Path) -> tuple[Table, str]:
    """A table, and why it is empty."""
    try:
        return tables.build(stem, tables_dir), ""
    except NothingToDrawError as nothing:
        return Table((), (), ""), str(nothing)


def _versions(metas: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The version of each library; where tables differ, all."""
    by_name: dict[str, list[str]] = {}
    for meta in metas:
        for name, version in meta["versions"].items():
            versions = by_name.setdefault(name, [])
            if version:
                versions.append(version)
    names = sorted(sorted(by_name), key=str.lower)
    return [(name, " / ".join(unique_items(by_name[name]))) for name in names]


def _notes(verdicts: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """Inconsistencies of the paper, each once, with the ids of the claims that it touches.

    First those of two values, then those that need words.
    """
    sides = [(_two_values(verdict), [verdict["id"]]) for verdict in verdicts]
    return [side for side in sides if side[0]] + _remarks(verdicts)


def _two_values(verdict: Row) -> str:
    """A number of the paper and what the paper says of it elsewhere; empty without one."""
    if verdict["other_value"] is None:
        return ""
    unit = verdict["unit"]
    values = (formats.with_unit(verdict[name], unit) for name in ("paper_value", "other_value"))
    places = (verdict["where"], verdict["other_where"])
    texts = [f"{value} ({place})" for value, place in zip(values, places, strict=True)]
    return f"{verdict['statement']}: {', but '.join(texts)}"


def _remarks(verdicts: Sequence[Row]) -> list[tuple[str, list[str]]]:
    noted = [verdict for verdict in verdicts if verdict["note"]]
    notes = dict.fromkeys(verdict["note"] for verdict in noted)
    ids = []
    for note in notes:
        # A note may be the beginning of a longer one, which then stands for both.
        if not any(note != other and note in other for other in notes):
            ids.append((note, [verdict["id"] for verdict in noted if verdict["note"] in note]))
    return ids
