"""The CSVs behind the report: every cell has an address that a number can link to."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import experiments
from wallclock.paper import claims
from wallclock.paper.csvfile import read_columns, read_table
from wallclock.paper.tables.table import Source

#: Rows of a table of spans that the report shows; the rest is in the file.
_MAX_ROWS = 40
#: A table with more columns than this is shown transposed.
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
    def transposed(self) -> bool:
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
    """Every CSV of a run, in the order of the experiments, and the cells that are linked to."""

    csvs: list[Csv]
    cited: set[str] = field(default_factory=set)

    def href(self, source: Source) -> str:
        """The link to a cell; to its table, where the row is not shown; empty if there is none."""
        csv = self._csv(source.csv)
        if csv is None or source.row > csv.n_rows or source.column not in csv.columns:
            return ""
        if source.row > len(csv.rows):
            return f"#{csv.anchor}"
        self.cited.add(csv.cell_anchor(source.row, source.column))
        return f"#{csv.cell_anchor(source.row, source.column)}"

    def href_of_table(self, name: str) -> str:
        """The link to a CSV; empty if it is absent."""
        csv = self._csv(name)
        return f"#{csv.anchor}" if csv else ""

    def cells_cited_by(self, csv_cell: str, row_cell: str, column: str) -> list[Source]:
        """The cells that a verdict names: `a.csv / b.csv`, `row / row`, column; absent ones not."""
        selectors, names = row_cell.split(" / "), csv_cell.split(" / ")
        sources = []
        for index, selector in enumerate(selectors):
            csv = self._csv(names[min(index, len(names) - 1)])
            row = claims.select(csv.rows, selector) if csv else None
            if csv is not None and row is not None:
                sources.append(Source(csv.name, csv.rows.index(dict(row)) + 1, column))
        return sources

    def _csv(self, name: str) -> Csv | None:
        return next((csv for csv in self.csvs if csv.name == name), None)


def collect(tables_dir: Path) -> Evidence:
    """Read every CSV of a run but the verdicts, which the report lists themselves.

    Raises UserError if one is damaged.
    """
    names = (*experiments.ORDER, *experiments.ON_REQUEST)
    owners = {csv: name for name in names for csv in experiments.load(name).TABLES}
    present = {path.name for path in tables_dir.glob("*.csv")} - {claims.CSV}
    ordered = [name for name in owners if name in present] + sorted(present - owners.keys())
    return Evidence([_read(tables_dir / name, owners.get(name, "")) for name in ordered])


def about(tables_dir: Path) -> list[dict[str, Any]]:
    """The provenance of each table: the `.meta.json` files, in order of the tables' names."""
    paths = sorted(tables_dir.glob("*.meta.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def _read(path: Path, experiment: str) -> Csv:
    rows, columns = read_table(path), read_columns(path)
    shown = rows if "status" in columns else rows[:_MAX_ROWS]
    return Csv(path.name, f"csv-{path.stem}", columns, shown, len(rows), experiment)
