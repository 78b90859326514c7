"""The CSVs behind the report: each cell has an address, so that a number can point at where it comes from."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import experiments
from wallclock.paper import claims
from wallclock.paper.csvfile import read_columns, read_table
from wallclock.paper.tables.table import Source

#: Restated in full by the list of verdicts.
_SHOWN_ELSEWHERE = "claims.csv"
#: Rows of a table of spans that the report shows; the rest is in the file.
_MAX_ROWS = 40
#: A table with more columns than this reads better lying: a line for each column.
_MAX_COLUMNS = 13


@dataclass(frozen=True)
class Csv:
    """One CSV as the report shows it."""

    name: str
    anchor: str
    columns: list[str]
    rows: list[dict[str, str]]
    n_rows: int
    experiment: str

    @property
    def lying(self) -> bool:
        """Whether it is shown with a line for each column and a column for each row."""
        return len(self.columns) > _MAX_COLUMNS and self.n_rows <= _MAX_COLUMNS

    def row_anchor(self, index: int) -> str:
        """The address of a row, counted from 1."""
        return f"{self.anchor}-row-{index}"

    def cell_anchor(self, index: int, column: str) -> str:
        """The address of a cell."""
        return f"{self.row_anchor(index)}-{column}"


@dataclass
class Evidence:
    """Every CSV of a run, in the order of the experiments, and which of their cells something points at."""

    csvs: list[Csv]
    cited: set[str] = field(default_factory=set)

    def href(self, source: Source) -> str:
        """Where a cell is shown; the whole table, where its row is not. Empty if there is no such cell."""
        csv = next((csv for csv in self.csvs if csv.name == source.csv), None)
        if csv is None or source.row > csv.n_rows or source.column not in csv.columns:
            return ""
        if source.row > len(csv.rows):
            return f"#{csv.anchor}"
        self.cited.add(csv.cell_anchor(source.row, source.column))
        return f"#{csv.cell_anchor(source.row, source.column)}"

    def href_of_table(self, name: str) -> str:
        """Where a CSV is shown; empty if it is not there."""
        return next((f"#{csv.anchor}" for csv in self.csvs if csv.name == name), "")

    def behind(self, csv_cell: str, row_cell: str, column: str) -> list[Source]:
        """The cells that a verdict names: `a.csv / b.csv`, `row / row`, column. Those not there are left out."""
        selectors = row_cell.split(" / ")
        names = csv_cell.split(" / ")
        found = []
        for name, selector in zip(
            names * len(selectors) if len(names) == 1 else names, selectors, strict=False
        ):
            csv = next((csv for csv in self.csvs if csv.name == name), None)
            row = claims.select(csv.rows, selector) if csv else None
            if csv is not None and row is not None:
                found.append(Source(name, csv.rows.index(dict(row)) + 1, column))
        return found


def collect(tables_dir: Path) -> Evidence:
    """Read every CSV of a run.

    Raises:
        UserError: one is damaged.
    """
    owners = {
        csv: name
        for name in (*experiments.ORDER, *experiments.ON_REQUEST)
        for csv in experiments.load(name).TABLES
    }
    present = {path.name for path in tables_dir.glob("*.csv")} - {_SHOWN_ELSEWHERE}
    ordered = [name for name in owners if name in present] + sorted(present - owners.keys())
    return Evidence([_csv(tables_dir / name, owners.get(name, "")) for name in ordered])


def about(tables_dir: Path) -> list[dict[str, Any]]:
    """What each table was made of and on: the `.meta.json` files, in order of the tables' names."""
    return [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(tables_dir.glob("*.meta.json"))
    ]


def _csv(path: Path, experiment: str) -> Csv:
    rows = read_table(path)
    columns = read_columns(path)
    shown = rows[:_MAX_ROWS] if rows and "status" not in rows[0] and len(rows) > _MAX_ROWS else rows
    return Csv(path.name, f"csv-{path.stem}", columns, shown, len(rows), experiment)
