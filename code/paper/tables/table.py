"""A table for people: its values, the CSV cells that they come from, and three ways to write it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.drawing import format as formats
from harness.drawing.format import EMPTY
from harness.drawing.rendering import Tables
from harness.table import Row, cell_of, ok_rows, read_table, write_table
from wallclock.files import write_text

TEMPLATES = Path(__file__).parents[1] / "report_template"
#: The kind of a column that is not formatted as a number.
TEXT = "text"
_FORMATS: Mapping[str, Callable[[float], str]] = {
    "number": formats.digits,
    "count": "{:,.0f}".format,
    "percent": formats.percent,
    "factor": formats.factor,
}
#: In a long name a line may break after an underscore.
_LATEX = {row["character"]: row["latex"] for row in read_table(TEMPLATES / "latex.csv")}
_LATEX["\u00a0"] = "~"
_TO_LATEX = str.maketrans(_LATEX)
_TO_MARKDOWN = str.maketrans({"\\": "\\\\", "|": "\\|", "<": "&lt;", "*": "\\*", "`": "\\`"})


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
    """A column: its name in the CSV, its heading, the format of its values, its width on paper.

    `report_template/columns.csv` declares those of every table.
    """

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
    def visible_columns(self) -> tuple[Column, ...]:
        """The columns that a reader sees."""
        return tuple(column for column in self.columns if not column.csv_only)

    def texts(self, escapes: Mapping[int, str]) -> list[list[str]]:
        """The headings, then the rows, as a reader sees them."""
        lines = [[column.heading for column in self.visible_columns]]
        for row in self.rows:
            lines.append([format_value(row[c.name].value, c.kind) for c in self.visible_columns])
        return [[cell.translate(escapes) for cell in cells] for cells in lines]


@dataclass(frozen=True)
class SourceRow:
    """One row of one CSV, with its address."""

    csv: str
    index: int
    row: Row

    def number(self, column: str) -> Value:
        """A number, with its source; empty where there is none."""
        value = self.row.get(column)
        if value is None:
            return Value()
        return Value(value, (Source(self.csv, self.index, column),))

    def values(self, columns: Sequence[Column]) -> dict[str, Value]:
        """Its cells under `columns`."""
        return {column.name: self._value(column) for column in columns}

    def _value(self, column: Column) -> Value:
        if column.kind == TEXT:
            return Value(cell_of(self.row.get(column.name)) or None)
        return self.number(column.name)

    @property
    def ok(self) -> bool:
        """Whether the row holds a measurement."""
        return bool(ok_rows([self.row]))


def columns_of(stem: str) -> tuple[Column, ...]:
    """The columns of a table of the paper."""
    return tuple(
        Column(
            row["name"],
            row["heading"],
            row["kind"],
            width=float(row["width"] or 0),
            csv_only=row["csv_only"] == "yes",
        )
        for row in read_table(TEMPLATES / "columns.csv")
        if row["table"] == stem
    )


def rows_of(tables: Tables, csv: str) -> list[SourceRow]:
    """All rows of a table; none if it is absent."""
    return [SourceRow(csv, index, row) for index, row in enumerate(tables.get(csv, []), start=1)]


def find(tables: Tables, csv: str, **cells: object) -> SourceRow | None:
    """The first measured row with these cells."""
    for source in rows_of(tables, csv):
        if source.ok and all(source.row.get(column) == value for column, value in cells.items()):
            return source
    return None


def ratio(numerator: Value, denominator: Value) -> Value:
    """One number over another, with the sources of both; empty where either is."""
    above, below = numerator.value, denominator.value
    if isinstance(above, str | None) or isinstance(below, str | None) or not below:
        return Value()
    return Value(above / below, numerator.sources + denominator.sources)


def format_value(value: str | float | None, kind: str) -> str:
    """A value in the format of its column."""
    if value is None or value == "":
        return EMPTY
    if isinstance(value, str):
        return value
    return _FORMATS[kind](value)


def to_markdown(table: Table, title: str) -> str:
    """A pipe table under its title, its caption below."""
    headings, *rows = table.texts(_TO_MARKDOWN)
    rule = ["---" if column.kind == TEXT else "---:" for column in table.visible_columns]
    lines = [f"**{title}**", ""]
    lines += [f"| {' | '.join(cells)} |" for cells in (headings, rule, *rows)]
    lines += ["", table.caption.translate(_TO_MARKDOWN)]
    return "\n".join(lines) + "\n"


def to_latex(table: Table, title: str, label: str) -> str:
    """A booktabs table; one that runs over pages where it is long."""
    name = "longtable.tex" if table.long else "table.tex"
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    headings, *rows = (" & ".join(cells) + r" \\" for cells in table.texts(_TO_LATEX))
    caption = f"{title}. {table.caption}".translate(_TO_LATEX)
    parts = {
        "align": "".join(_latex_alignment(column) for column in table.visible_columns),
        "heads": headings,
        "rows": "\n".join(rows),
        "label": label,
        "caption": rf"\caption{{{caption}}}",
    }

    def part_of(placeholder: re.Match[str]) -> str:
        return parts[placeholder[1]]

    return re.sub(r"@(\w+)@", part_of, text)


def _latex_alignment(column: Column) -> str:
    if column.width:
        return rf"p{{{column.width:g}\linewidth}}"
    return "l" if column.kind == TEXT else "r"


def save(table: Table, title: str, stem: str, out_dir: Path) -> list[Path]:
    """Write the table as CSV, Markdown and LaTeX; equal tables give equal bytes."""
    csv, markdown, latex = (out_dir / f"{stem}{suffix}" for suffix in (".csv", ".md", ".tex"))
    names = [column.name for column in table.columns]
    write_table(csv, names, [{name: row[name].value for name in names} for row in table.rows])
    write_text(markdown, to_markdown(table, title))
    write_text(latex, to_latex(table, title, stem))
    return [csv, markdown, latex]
