"""Table 4: every number that the paper cites, the cell that backs it, ours, and the verdict."""

from __future__ import annotations

from collections import Counter

from wallclock.paper.claims import VERDICTS
from wallclock.paper.rendering import NothingToDrawError, Tables
from wallclock.paper.tables.table import FACTOR, NUMBER, Cell, Column, Found, Table, found_in

STEM = "table-4-reproducibility"
TITLE = "Every cited number: the paper's value, ours, the verdict"
SOURCES: tuple[str, ...] = ("claims.csv",)
OPTIONAL: tuple[str, ...] = ()

_COLUMNS = (
    Column("id", "claim", width=0.13),
    Column("csv", "CSV", width=0.13),
    Column("row", "row", width=0.11),
    Column("column", "column", width=0.09),
    Column("paper_value", "paper", NUMBER),
    Column("ours", "ours", NUMBER),
    Column("unit", "unit"),
    Column("ratio", "ours/paper", FACTOR),
    Column("verdict", "verdict", width=0.07),
    Column("reason", "reason", width=0.19),
    Column("statement", "statement", csv_only=True),
    Column("note", "note", csv_only=True),
)


def build(tables: Tables) -> Table:
    """A row a claim, in the paper's order. Raises NothingToDrawError."""
    found = found_in(tables, SOURCES[0])
    if not found:
        raise NothingToDrawError(f"no row in {SOURCES[0]}")
    counts = Counter(each.row["verdict"] for each in found)
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    caption = f"{len(found)} claims: {words}. Wherever a row names two cells, the number is the first over the second."
    return Table(_COLUMNS, tuple(_row(each) for each in found), caption, long=True)


def _row(found: Found) -> dict[str, Cell]:
    return {
        column.name: Cell(found.number(column.name).value)
        if column.kind in (NUMBER, FACTOR)
        else found.text(column.name)
        for column in _COLUMNS
    }
