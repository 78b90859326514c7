"""Table 4: every number that the paper cites, the cell that backs it, ours, and the verdict."""

from __future__ import annotations

from collections import Counter

from wallclock.paper import claims
from wallclock.paper.rendering import NothingToDrawError, Tables, output
from wallclock.paper.tables.table import FACTOR, NUMBER, Column, Table, Value, rows_of

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


@output(
    "table-4-reproducibility",
    "Every cited number: the paper's value, ours, the verdict",
    claims.CSV,
)
def build(tables: Tables) -> Table:
    """A row a claim, in the paper's order."""
    sources = rows_of(tables, claims.CSV)
    if not sources:
        raise NothingToDrawError(f"no row in {claims.CSV}")
    counts = Counter(source.row["verdict"] for source in sources)
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in claims.VERDICTS)
    caption = (
        f"{len(sources)} claims: {words}. Wherever a row names two cells, the number is the first "
        "over the second."
    )
    # The sources of a verdict are in its own columns, csv and row.
    rows = (
        {name: Value(value.value) for name, value in source.values(_COLUMNS).items()}
        for source in sources
    )
    return Table(_COLUMNS, tuple(rows), caption, long=True)
