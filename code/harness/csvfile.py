"""The one way a table is written and read: the same rows always give the same bytes."""

import csv
import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path

import numpy as np

from wallclock.errors import UserError
from wallclock.files import atomic_open

#: A row of a table as it is read: text by column.
Row = Mapping[str, str]
#: A number, or a cell of a CSV that holds one.
CellValue = float | str | None


def write_table(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
    """Write `rows` under `columns`, in the orders given: UTF-8, LF, floats as `%.6g`.

    None and NaN become empty cells, True and False become `yes` and `no`. A line break in a text (a
    tool's error message, say) becomes a space: a row is one line, in every tool that reads it.

    Raises ValueError if a column is declared twice, a row misses a column or has one that is not
    declared, or a value has no form in a table (a list, say).
    """
    declared = set(columns)
    if len(declared) != len(columns):
        raise ValueError(f"{path.name}: a column is declared twice: {', '.join(columns)}")
    lines = []
    for index, row in enumerate(rows, start=1):
        if row.keys() != declared:
            lacks, extra = sorted(declared - row.keys()), sorted(row.keys() - declared)
            raise ValueError(f"{path.name}, row {index}: lacks {lacks}, undeclared: {extra}")
        lines.append([_cell(row[column]) for column in columns])
    with atomic_open(path) as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(lines)


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table, each a mapping from column to cell, as text.

    Raises UserError if the file has no header, or a row has more or fewer cells than the header.
    """
    header, lines = _read(path)
    return [dict(zip(header, line, strict=True)) for line in lines]


def read_columns(path: Path) -> list[str]:
    """Return the columns of a table, also of one without rows. Raises like `read_table`."""
    return _read(path)[0]


def number(cell: CellValue) -> float | None:
    """The number in a cell; None if it is empty or NaN. Raises ValueError for other text."""
    value = math.nan if cell in ("", None) else float(cell)
    return None if math.isnan(value) else value


def ok_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows that hold a measurement: those whose status is `ok`, and all of a table of spans."""
    return [row for row in rows if row.get("status", "ok") == "ok"]


def distinct(rows: Sequence[Row], column: str) -> list[str]:
    """The values of a column, each once, in order of appearance; empty cells left out."""
    return list(dict.fromkeys(row[column] for row in rows if row.get(column)))


def join_distinct(rows: Sequence[Row], column: str, labels: Mapping[str, str] | None = None) -> str:
    """The distinct values of a column as `a / b`, by their labels where there are any."""
    return " / ".join(labels[value] if labels else value for value in distinct(rows, column))


def _cell(value: object) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return ""
    if isinstance(value, str):
        return " ".join(value.splitlines())
    if isinstance(value, bool):  # before int, which bool is a kind of
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return "" if math.isnan(value) else f"{float(value):.6g}"
    raise ValueError(f"a {type(value).__name__} has no form in a table: {value!r}")


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    with path.open(encoding="utf-8", newline="") as handle:
        lines = list(csv.reader(handle))
    header = lines.pop(0) if lines else []
    if not header:
        raise UserError(f"{path} has no header line; delete it and run its experiment again")
    for index, line in enumerate(lines, start=1):
        if len(line) != len(header):
            counts = f"{len(line)} cells under {len(header)} columns"
            raise UserError(
                f"{path}, row {index}: {counts}; delete it and run its experiment again"
            )
    return header, lines
