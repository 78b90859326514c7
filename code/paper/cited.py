"""The cells of our tables that claims cite, and how they are named: table, row and column."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.table import Row, cell_of, column, read_table
from paper.provenance_files import read_provenance
from wallclock.errors import UserError

#: `key=value` pairs; a value runs up to the next key, so it may hold spaces.
_PAIR = re.compile(r"(\w+)=(.*?)(?=\s+\w+=|$)")


class NoNumberError(Exception):
    """There is no number to judge; the message is the reason."""


@dataclass(frozen=True)
class CitedCell:
    """A cell that a claim names; `limits`: its lowest and highest repeat, None if not known."""

    csv: str
    column: str
    row: Row
    value: float
    limits: tuple[float, float] | None

    @property
    def of_one_repeat(self) -> bool:
        """Whether more repeats could have changed it."""
        return self.row.get("repeats") == 1 and not column(self.csv, self.column).is_exact


def cells_of(selector: str) -> list[tuple[str, str]]:
    """Column and value of each cell that a selector names; none for a row's number."""
    return _PAIR.findall(selector)


def select(rows: Sequence[Row], selector: str) -> Row | None:
    """Return the row that `selector` names, None if there is none.

    `3` is the third row; `image_set=original decoder=pil` is the row with those cells.

    Raises ValueError if the selector is neither, or several rows match.
    """
    if selector.isdecimal() and int(selector) > 0:
        return rows[int(selector) - 1] if len(rows) >= int(selector) else None
    cells = cells_of(selector)
    if not cells:
        raise ValueError(f"'{selector}' is neither a row's number nor column=value pairs")
    matching = [
        row for row in rows if all(cell_of(row.get(name)) == value for name, value in cells)
    ]
    if len(matching) > 1:
        raise ValueError(f"{len(matching)} rows match '{selector}'")
    return matching[0] if matching else None


class CitedTables:
    """The tables of one folder, each read once; `experiments`: which one writes a table."""

    def __init__(self, folder: Path, experiments: Mapping[str, str]) -> None:
        self._folder = folder
        self._experiments = experiments
        self._read = cache(read_table)
        self._provenance = read_provenance(folder)

    def cells(
        self, places: Sequence[tuple[str, str, str]], claim: str, experiment: str
    ) -> list[CitedCell]:
        """The cells at these tables, rows and columns, which a claim names, of like runs.

        `experiment`: of a table that no claim owns.

        Raises NoNumberError if one is not there, or they are of unlike runs; UserError if a table
        lacks the column, or holds several such rows.
        """
        cells = [
            self._cell(csv, self._row(csv, selector, experiment), name, claim)
            for csv, selector, name in places
        ]
        self._check_alike(cells)
        return cells

    def machine(self, csv: str) -> dict[str, Any]:
        """The machine that measured a table; empty where its provenance does not say."""
        machine: dict[str, Any] = self._provenance.get(csv, {}).get("machine", {})
        return machine

    def _cell(self, csv: str, row: Row, name: str, claim: str) -> CitedCell:
        about = column(csv, name)
        if name not in row or not about.is_number:
            raise UserError(f"{csv} has no numbers in {name}, which the claim {claim} cites")
        value = row[name]
        if value is None:
            raise NoNumberError(f"the cell {name} is empty")
        low, high = (value if about.is_exact else row.get(end) for end in about.limits)
        limits = None if low is None or high is None else (low, high)
        return CitedCell(csv, name, row, value, limits)

    def _row(self, csv: str, selector: str, default: str) -> Row:
        """The measured row that a selector names; `default`: the experiment of an unowned table."""
        command = f"python code/main.py --experiment {self._experiments.get(csv, default)}"
        path = self._folder / csv
        if not path.is_file():
            raise NoNumberError(f"no {csv}; run {command}")
        try:
            row = select(self._read(path), selector)
        except ValueError as error:
            raise UserError(f"{path}: {error}; delete it and run {command}") from error
        if row is None:
            raise NoNumberError(f"no row '{selector}' in {csv}; run {command}")
        if row.get("status") != "ok":
            reason = f": {row['reason']}" if row.get("reason") else ""
            raise NoNumberError(f"{row.get('status') or 'no status'}{reason}")
        if row.get("origin") == "paper":
            raise NoNumberError(f"the row is the paper's, not a measurement; run {command}")
        return row

    def _check_alike(self, cells: Sequence[CitedCell]) -> None:
        """Two cells of unlike runs say nothing about either.

        Of one kind of device they must be of the same device; a CPU's and a GPU's, of one machine.
        """
        first = cells[0]
        for base in cells[1:]:
            names = ["corpus", "image_set"]
            if first.row.get("device_kind", "") == base.row.get("device_kind", ""):
                names.insert(0, "device")
            elif _hardware(self.machine(first.csv)) != _hardware(self.machine(base.csv)):
                raise NoNumberError("the two rows are of unlike runs: two machines")
            for name in names:
                above, below = first.row.get(name, ""), base.row.get(name, "")
                if above and below and above != below:
                    raise NoNumberError(
                        f"the two rows are of unlike runs: {name} {above} and {below}"
                    )


def _hardware(machine: Mapping[str, Any]) -> tuple[Any, ...]:
    gpus = [gpu["name"] for gpu in machine.get("gpus", ())]
    return machine.get("cpu"), machine.get("cores"), gpus
