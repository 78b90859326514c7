"""Tables 1 and 4, a row for each of a CSV: how the vectors were written, what the paper cites."""

from collections import Counter

from experiments.serialization import cells as serialization
from harness.drawing.rendering import Tables, output
from harness.table import join_distinct
from paper import claims
from paper.tables.table import Table, Value, columns_of, rows_of

_HEADING = (
    "The write-up heads its own table “for 100 K vectors”; by its throughputs and sizes it is "
    "for 50 K."
)


@output("table-1-serialization", "Writing the vectors, by format", serialization.CSV)
def build_serialization(tables: Tables) -> Table:
    """A row a format, with and without fsync."""
    columns = columns_of("table-1-serialization")
    sources = rows_of(tables, serialization.CSV)
    measured = [source.row for source in sources if source.ok]
    failed = [source.row for source in sources if not source.ok]
    parts = []
    if measured:
        dim = join_distinct(measured, "dim")
        repeats = join_distinct(measured, "repeats")
        device = join_distinct(measured, "device")
        parts.append(f"Vectors of {dim} × float32, the median of {repeats} repeats, on {device}.")
    parts.append(_HEADING)
    if failed:
        reasons = [f"{row['format']}: {row['status']} ({row['reason']})" for row in failed]
        parts.append(f"Not measured: {'; '.join(reasons)}.")
    return Table(columns, tuple(source.values(columns) for source in sources), " ".join(parts))


@output(
    "table-4-reproducibility",
    "Every cited number: the paper's value, ours, the verdict",
    claims.CSV,
)
def build_claims(tables: Tables) -> Table:
    """A row a claim, in the paper's order."""
    columns = columns_of("table-4-reproducibility")
    sources = rows_of(tables, claims.CSV)
    counts = Counter(source.row["verdict"] for source in sources)
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in claims.VERDICTS)
    caption = (
        f"{len(sources)} claims: {words}. Wherever a row names two cells, the number is the first "
        "over the second, or of kind difference the first less the second."
    )
    # The sources of a verdict are in its own columns, csv and row.
    rows = tuple(
        {name: Value(value.value) for name, value in source.values(columns).items()}
        for source in sources
    )
    return Table(columns, rows, caption, long=True)
