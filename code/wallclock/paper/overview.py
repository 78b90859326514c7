"""The tables of a run on a terminal: one line a row, its headline figure, what dominates it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wallclock.clock import STAGES
from wallclock.paper.csvfile import number, read_table

#: Columns that name a row, in the order they are shown.
_NAMES = (
    "system",
    "what",
    "recipe",
    "decoder",
    "runtime",
    "dtype",
    "format",
    "image_set",
    "subset",
)

#: (column, how it reads): the first that a row fills is its headline.
_HEADLINES = (
    ("img_per_s", "{:,.1f} img/s"),
    ("vectors_per_s", "{:,.0f} vectors/s"),
    ("mean_ms", "{:.2f} ms"),
    ("ns_per_call", "{:.0f} ns a call"),
    ("max_relative_difference", "{:.2%} apart at most"),
)


def print_tables(paths: Sequence[Path], console: Console) -> None:
    """Print a summary of each table: rows by name, headline, largest stages or status."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("table", "row", "result", ""):
        table.add_column(
            heading, justify="right" if heading == "result" else "left", overflow="fold"
        )
    for path in paths:
        rows = read_table(path)
        if rows and "status" not in rows[0]:
            table.add_row(path.stem, "", f"{len(rows):,} spans", "")
            table.add_row()
            continue
        for index, row in enumerate(rows):
            cells = (path.stem if index == 0 else "", _name(row), _headline(row), _detail(row))
            table.add_row(*(Text(cell) for cell in cells))
        table.add_row()
    if paths:
        console.print(table)


def _name(row: Mapping[str, str]) -> str:
    parts = [row[column] for column in _NAMES if row.get(column) and row[column] != "null"]
    if row.get("fsync") == "yes":
        parts.append("with fsync")
    return " ".join(dict.fromkeys(parts))


def _headline(row: Mapping[str, str]) -> str:
    for column, form in _HEADLINES:
        value = number(row.get(column, ""))
        if value is not None:
            return form.format(value)
    return row.get("status", "")


def _detail(row: Mapping[str, str]) -> str:
    if row.get("status", "ok") != "ok":
        return row.get("reason", "")
    shares = [(number(row.get(f"{stage}_share", "")) or 0.0, stage) for stage in STAGES]
    largest = [
        f"{stage} {share:.0%}" for share, stage in sorted(shares, reverse=True)[:3] if share >= 0.01
    ]
    return " · ".join(largest)
