"""Table 1: what it takes to write the vectors, by format, with and without fsync."""

from __future__ import annotations

from wallclock.paper.rendering import NothingToDrawError, Tables
from wallclock.paper.tables.table import COUNT, NUMBER, Cell, Column, Found, Table, found_in

STEM = "table-1-serialization"
TITLE = "Writing the vectors, by format"
SOURCES: tuple[str, ...] = ("serialization-comparison.csv",)
OPTIONAL: tuple[str, ...] = ()

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


def build(tables: Tables) -> Table:
    """A row for each row of the CSV. Raises NothingToDrawError."""
    found = found_in(tables, SOURCES[0])
    if not found:
        raise NothingToDrawError(f"no row in {SOURCES[0]}")
    return Table(_COLUMNS, tuple(_row(each) for each in found), _caption(found))


def _row(found: Found) -> dict[str, Cell]:
    return {
        column.name: found.number(column.name)
        if column.kind in (NUMBER, COUNT)
        else found.text(column.name)
        for column in _COLUMNS
    }


def _caption(found: list[Found]) -> str:
    """What was written, where; and what the paper's own heading gets wrong."""
    measured = [each.row for each in found if each.ok]
    dims = " / ".join(dict.fromkeys(row["dim"] for row in measured))
    machines = " / ".join(dict.fromkeys(row["device"] for row in measured))
    repeats = " / ".join(dict.fromkeys(row["repeats"] for row in measured))
    lacking = [
        f"{each.row['format']}: {each.row['status']} ({each.row['reason']})"
        for each in found
        if not each.ok
    ]
    parts = [
        f"Vectors of {dims} × float32, the median of {repeats} repeats, on {machines}."
        if measured
        else "",
        "The write-up heads its own table “for 100 K vectors”; by its throughputs and sizes it is for 50 K.",
        f"Not measured: {'; '.join(lacking)}." if lacking else "",
    ]
    return " ".join(filter(None, parts))
