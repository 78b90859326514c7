"""What every output has in common: the tables it reads, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wallclock.paper.csvfile import ok_rows, read_table

#: Rows of each table that is there, by the table's name.
Tables = Mapping[str, list[dict[str, str]]]


@dataclass(frozen=True)
class Rendering:
    """What became of one output: the files written, or why there are none."""

    stem: str
    paths: tuple[Path, ...]
    skipped: str = ""


class NothingToDrawError(Exception):
    """The tables are not there, or hold no row that could be shown. The message says which."""


def read_sources(folder: Path, required: Sequence[str], optional: Sequence[str]) -> Tables:
    """Read the tables of one output: all of `required`, and those of `optional` that are there.

    The message of the error names no folder: it is printed in the report, which must not depend on
    where it was built.

    Raises:
        NothingToDrawError: a required table is missing, or nothing is required and none is there.
        UserError: a table is damaged.
    """
    missing = [name for name in required if not (folder / name).is_file()]
    if missing:
        raise NothingToDrawError(f"no {', '.join(missing)}")
    tables = {
        name: read_table(folder / name)
        for name in (*required, *optional)
        if (folder / name).is_file()
    }
    if not tables:
        raise NothingToDrawError(f"no {' nor '.join(optional)}")
    return tables


def measured_sources(folder: Path, required: Sequence[str], optional: Sequence[str]) -> Tables:
    """Like `read_sources`, without the optional tables in which no row has status ok.

    Raises:
        NothingToDrawError: also where a required table, or every optional one, has no such row.
        UserError: a table is damaged.
    """
    tables = read_sources(folder, required, optional)
    empty = [name for name, rows in tables.items() if not ok_rows(rows)]
    if any(name in required for name in empty) or len(empty) == len(tables):
        raise NothingToDrawError(f"no row with status ok in {', '.join(empty)}")
    return {name: rows for name, rows in tables.items() if name not in empty}
