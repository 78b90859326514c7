"""Table 1: what it takes to write the vectors, by format, with and without fsync."""

from __future__ import annotations

from experiments import serialization
from wallclock.paper.csvfile import joined
from wallclock.paper.rendering import NothingToDrawError, Tables, output
from wallclock.paper.tables.table import COUNT, NUMBER, Column, SourceRow, Table, rows_of

_COLUMNS = (
    Column("format", "format"),
    Column("fsync", "fsync"),
    Column("n_vectors", "vectors", COUNT),
    Column("write_s", "seconds", NUMBER),
    Column("vectors_per_s", "vectors/s", COUNT),
    Column("mib_per_s", "MiB/s", NUMBER),
    Column("size_mib", "size, MiB", NUMBER),
    Column("read_back", "read back"),
    Column("origin", "origin"),
    Column("status", "status"),
    Column("write_s_min", "fastest", NUMBER, csv_only=True),
    Column("write_s_max", "slowest", NUMBER, csv_only=True),
    Column("repeats", "repeats", COUNT, csv_only=True),
    Column("device", "machine", csv_only=True),
    Column("reason", "reason", csv_only=True),
)


@output("table-1-serialization", "Writing the vectors, by format", serialization.CSV)
def build(tables: Tables) -> Table:
    """A row for each row of the CSV."""
    sources = rows_of(tables, serialization.CSV)
    if not sources:
        raise NothingToDrawError(f"no row in {serialization.CSV}")
    return Table(_COLUMNS, tuple(source.values(_COLUMNS) for source in sources), _caption(sources))


def _caption(sources: list[SourceRow]) -> str:
    """What was written, where; and what the paper's own heading gets wrong."""
    measured = [source.row for source in sources if source.ok]
    failed = [source.row for source in sources if not source.ok]
    parts = [
        "The write-up heads its own table “for 100 K vectors”; by its throughputs and sizes it is "
        "for 50 K."
    ]
    if measured:
        dim, repeats, device = (joined(measured, name) for name in ("dim", "repeats", "device"))
        vectors = f"Vectors of {dim} × float32, the median of {repeats} repeats, on {device}."
        parts.insert(0, vectors)
    if failed:
        reasons = "; ".join(map("{format}: {status} ({reason})".format_map, failed))
        parts.append(f"Not measured: {reasons}.")
    return " ".join(parts)
