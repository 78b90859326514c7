"""A table for people: what its cells say, which rows of which CSV they come from, and three ways to write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wallclock.files import write_text
from wallclock.paper.csvfile import number, write_table
from wallclock.paper.rendering import Tables

#: What stands where there is nothing to say.
EMPTY = "–"
#: How a column's values read.
TEXT, NUMBER, COUNT, PERCENT, FACTOR = "text", "number", "count", "percent", "factor"

_LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#{}"},
        # a line may break in a long name
        **{"_": r"\_\allowbreak{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"},
        **{
            "×": r"$\times$",
            "÷": r"$\div$",
            "·": r"$\cdot$",
            "–": "--",
            "≥": r"$\geq$",
            "≤": r"$\leq$",
        },
        **{"²": r"$^2$", "→": r"$\rightarrow$", "†": r"\dag{}", "…": r"\ldots{}", "\u00a0": "~"},
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
class Cell:
    """A value, and the cells of CSVs that it was computed from."""

    value: str | float | None = None
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Column:
    """A column: its name in the CSV, its heading, how its values read, its width on paper."""

    name: str
    heading: str
    kind: str = TEXT
    #: In LaTeX, as a share of the line; 0: as wide as its text.
    width: float = 0.0
    #: Kept out of Markdown, LaTeX and the report, whose pages are narrow.
    csv_only: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under columns, and the line that says what they are."""

    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Cell], ...]
    caption: str
    #: Longer than a page.
    long: bool = False

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns that a reader sees."""
        return tuple(column for column in self.columns if not column.csv_only)


@dataclass(frozen=True)
class Found:
    """One row of one CSV, which knows where it stands."""

    csv: str
    index: int
    row: Mapping[str, str]

    def text(self, column: str) -> Cell:
        """A cell as it is."""
        return Cell(self.row.get(column) or None)

    def number(self, column: str) -> Cell:
        """A number, with its source; empty where there is none."""
        value = number(self.row.get(column, ""))
        return Cell() if value is None else Cell(value, (Source(self.csv, self.index, column),))

    @property
    def ok(self) -> bool:
        """Whether the row holds a measurement."""
        return self.row.get("status", "ok") == "ok"


def found_in(tables: Tables, csv: str) -> list[Found]:
    """All rows of a table; none where there is no such table."""
    return [Found(csv, index, row) for index, row in enumerate(tables.get(csv, []), start=1)]


def find(tables: Tables, csv: str, **cells: str) -> Found | None:
    """The first measured row with these cells."""
    for found in found_in(tables, csv):
        if found.ok and all(found.row.get(column) == value for column, value in cells.items()):
            return found
    return None


def ratio(above: Cell, below: Cell) -> Cell:
    """One number over another, with the sources of both; empty where either is."""
    if not (isinstance(above.value, float) and isinstance(below.value, float) and below.value):
        return Cell()
    return Cell(above.value / below.value, above.sources + below.sources)


def shown(value: str | float | None, kind: str) -> str:
    """A value as a reader wants it: three or four digits, units that the heading does not name."""
    if value is None or value == "":
        return EMPTY
    if isinstance(value, str):
        return value
    if kind == PERCENT:
        if 0 < value < 0.0005:
            return "< 0.1 %"
        return f"{100 * value:.1f} %"
    if kind == FACTOR:
        return (
            f"{value:,.0f}×"
            if value >= 100
            else f"{value:.2f}×"
            if value >= 0.095
            else f"{value:.2g}×"
        )
    if kind == COUNT or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 100 else f"{value:.3g}"


def to_markdown(table: Table, title: str) -> str:
    """A pipe table under its title, its caption below."""
    heads = [column.heading.translate(_MARKDOWN) for column in table.shown]
    rule = ["---" if column.kind == TEXT else "---:" for column in table.shown]
    rows = [
        [shown(row[column.name].value, column.kind).translate(_MARKDOWN) for column in table.shown]
        for row in table.rows
    ]
    lines = [f"**{title}**", "", *(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows))]
    return "\n".join([*lines, "", table.caption.translate(_MARKDOWN)]) + "\n"


def to_latex(table: Table, title: str, label: str) -> str:
    """A booktabs table; one that runs over pages where it is long."""
    align = "".join(_alignment(column) for column in table.shown)
    heads = _latex_line([column.heading for column in table.shown])
    rows = [
        _latex_line([shown(row[column.name].value, column.kind) for column in table.shown])
        for row in table.rows
    ]
    caption = rf"\caption{{{title.translate(_LATEX)}. {table.caption.translate(_LATEX)}}}"
    if table.long:
        lines = [
            r"% needs \usepackage{booktabs,longtable}",
            *(
                r"\begingroup\scriptsize\setlength{\tabcolsep}{3pt}",
                rf"\begin{{longtable}}{{{align}}}",
            ),
            *(
                rf"{caption}\label{{tab:{label}}}\\",
                r"\toprule",
                heads,
                r"\midrule",
                r"\endfirsthead",
            ),
            *(r"\toprule", heads, r"\midrule", r"\endhead", r"\bottomrule", r"\endfoot"),
            *rows,
            *(r"\end{longtable}", r"\endgroup"),
        ]
    else:
        lines = [
            r"% needs \usepackage{booktabs}",
            *(
                r"\begin{table}",
                r"\centering\small\setlength{\tabcolsep}{4pt}",
                caption,
                rf"\label{{tab:{label}}}",
            ),
            *(rf"\begin{{tabular}}{{{align}}}", r"\toprule", heads, r"\midrule"),
            *rows,
            *(r"\bottomrule", r"\end{tabular}", r"\end{table}"),
        ]
    return "\n".join(lines) + "\n"


def save(table: Table, title: str, stem: str, out_dir: Path) -> list[Path]:
    """Write the table as CSV, Markdown and LaTeX; equal tables give equal bytes."""
    paths = [out_dir / f"{stem}{suffix}" for suffix in (".csv", ".md", ".tex")]
    names = [column.name for column in table.columns]
    write_table(paths[0], names, [{name: row[name].value for name in names} for row in table.rows])
    write_text(paths[1], to_markdown(table, title))
    write_text(paths[2], to_latex(table, title, stem))
    return paths


def _alignment(column: Column) -> str:
    if column.width:
        return rf"p{{{column.width:g}\linewidth}}"
    return "l" if column.kind == TEXT else "r"


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cell.translate(_LATEX) for cell in cells) + r" \\"
