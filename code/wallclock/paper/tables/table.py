"""A table for people: its values, the CSV cells that they come from, and three ways to write it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wallclock.files import write_text
from wallclock.paper import format as formats
from wallclock.paper.csvfile import Row, number, write_table
from wallclock.paper.format import EMPTY
from wallclock.paper.rendering import Tables

TEMPLATES = Path(__file__).parents[1] / "report_template"
#: How a column's values are formatted.
TEXT, NUMBER, COUNT, PERCENT, FACTOR = "text", "number", "count", "percent", "factor"
_FORMATS: Mapping[str, Callable[[float], str]] = {
    NUMBER: formats.digits,
    COUNT: "{:,.0f}".format,
    PERCENT: formats.percent,
    FACTOR: formats.factor,
}

_LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#{}"},
        # A line may break in a long name.
        "_": r"\_\allowbreak{}",
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "×": r"$\times$",
        "÷": r"$\div$",
        "·": r"$\cdot$",
        "–": "--",
        "≥": r"$\geq$",
        "≤": r"$\leq$",
        "²": r"$^2$",
        "→": r"$\rightarrow$",
        "†": r"\dag{}",
        "…": r"\ldots{}",
        "\u00a0": "~",
    }
)
_MARKDOWN = str.maketrans({"\\": "\\\\", "|": "\\|", "<": "&lt;", "*": "\\*", "`": "\\`"})


@dataclass(frozen=True)
class Source:
    """A cell of a CSV: the table, the row (from 1) and the column."""

    csv: str
    row: int
    column: str


@dataclass(frozen=True)
class Value:
    """What a cell of a table shows, and the cells of CSVs that it was computed from."""

    value: str | float | None = None
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Column:
    """A column: its name in the CSV, its heading, the format of its values, its width on paper."""

    name: str
    heading: str
    kind: str = TEXT
    #: In LaTeX, as a share of the line; 0: as wide as its text.
    width: float = 0.0
    #: Kept out of Markdown, LaTeX and the report, whose pages are narrow.
    csv_only: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under columns, and a caption."""

    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Value], ...]
    caption: str
    #: Longer than a page.
    long: bool = False

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns that a reader sees."""
        return tuple(column for column in self.columns if not column.csv_only)


@dataclass(frozen=True)
class SourceRow:
    """One row of one CSV, with its address."""

    csv: str
    index: int
    row: Row

    def text(self, column: str) -> Value:
        """A cell as it is."""
        return Value(self.row.get(column) or None)

    def number(self, column: str) -> Value:
        """A number, with its source; empty where there is none."""
        value = number(self.row.get(column, ""))
        return Value() if value is None else Value(value, (Source(self.csv, self.index, column),))

    def values(self, columns: Sequence[Column]) -> dict[str, Value]:
        """Its cells under `columns`."""
        return {
            column.name: self.text(column.name) if column.kind == TEXT else self.number(column.name)
            for column in columns
        }

    @property
    def ok(self) -> bool:
        """Whether the row holds a measurement."""
        return self.row.get("status", "ok") == "ok"


def rows_of(tables: Tables, csv: str) -> list[SourceRow]:
    """All rows of a table; none if it is absent."""
    return [SourceRow(csv, index, row) for index, row in enumerate(tables.get(csv, []), start=1)]


def find(tables: Tables, csv: str, **cells: str) -> SourceRow | None:
    """The first measured row with these cells."""
    for source in rows_of(tables, csv):
        if source.ok and all(source.row.get(column) == value for column, value in cells.items()):
            return source
    return None


def ratio(above: Value, below: Value) -> Value:
    """One number over another, with the sources of both; empty where either is."""
    if not (isinstance(above.value, float) and isinstance(below.value, float) and below.value):
        return Value()
    return Value(above.value / below.value, above.sources + below.sources)


def shown(value: str | float | None, kind: str) -> str:
    """A value in the format of its column."""
    if value is None or value == "":
        return EMPTY
    return value if isinstance(value, str) else _FORMATS[kind](value)


def to_markdown(table: Table, title: str) -> str:
    """A pipe table under its title, its caption below."""
    heads = [column.heading.translate(_MARKDOWN) for column in table.shown]
    rule = ["---" if column.kind == TEXT else "---:" for column in table.shown]
    rows = [[text.translate(_MARKDOWN) for text in _texts(table, row)] for row in table.rows]
    lines = [f"**{title}**", "", *(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows))]
    return "\n".join([*lines, "", table.caption.translate(_MARKDOWN)]) + "\n"


def to_latex(table: Table, title: str, label: str) -> str:
    """A booktabs table; one that runs over pages where it is long."""
    name = "longtable.tex" if table.long else "table.tex"
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    parts = {
        "align": "".join(_alignment(column) for column in table.shown),
        "heads": _latex_line([column.heading for column in table.shown]),
        "rows": "\n".join(_latex_line(_texts(table, row)) for row in table.rows),
        "caption": rf"\caption{{{title.translate(_LATEX)}. {table.caption.translate(_LATEX)}}}",
        "label": label,
    }
    return re.sub(r"@(\w+)@", lambda match: parts[match[1]], text)


def save(table: Table, title: str, stem: str, out_dir: Path) -> list[Path]:
    """Write the table as CSV, Markdown and LaTeX; equal tables give equal bytes."""
    paths = [out_dir / f"{stem}{suffix}" for suffix in (".csv", ".md", ".tex")]
    names = [column.name for column in table.columns]
    write_table(paths[0], names, [{name: row[name].value for name in names} for row in table.rows])
    write_text(paths[1], to_markdown(table, title))
    write_text(paths[2], to_latex(table, title, stem))
    return paths


def _texts(table: Table, row: Mapping[str, Value]) -> list[str]:
    return [shown(row[column.name].value, column.kind) for column in table.shown]


def _alignment(column: Column) -> str:
    if column.width:
        return rf"p{{{column.width:g}\linewidth}}"
    return "l" if column.kind == TEXT else "r"


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cell.translate(_LATEX) for cell in cells) + r" \\"
