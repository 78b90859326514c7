"""What figures and tables have in common: the CSVs that they read, and what became of each."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

from harness.table import ok_rows, read_table

T = TypeVar("T")
#: Rows of each table that is there, by the table's name.
Tables = Mapping[str, list[dict[str, Any]]]


class NothingToDrawError(Exception):
    """The tables are absent, or hold no row that could be shown. The message says which."""


@dataclass(frozen=True)
class TextVersion:
    """The same output as text: the suffix of its file, and what makes it from CSVs by name."""

    suffix: str
    make: Callable[[Tables], str]


@dataclass(frozen=True)
class Output(Generic[T]):
    """A figure or a table of the paper; its module declares it with `@output`."""

    #: Name of its files, without suffix.
    stem: str
    title: str
    #: Makes it from CSVs by name. Raises NothingToDrawError if they hold nothing that it shows.
    make: Callable[[Tables], T]
    #: CSVs without which it cannot be made. An output has these or optional ones.
    required: tuple[str, ...] = ()
    #: CSVs that it shows where they are present.
    optional: tuple[str, ...] = ()
    text: TextVersion | None = None

    @property
    def csvs(self) -> tuple[str, ...]:
        """Every CSV that it reads."""
        return self.required + self.optional


def output(
    stem: str,
    title: str,
    *required: str,
    optional: tuple[str, ...] = (),
    text: TextVersion | None = None,
) -> Callable[[Callable[[Tables], T]], Output[T]]:
    """Declare the function that makes an output; the fields are those of `Output`."""

    def declare(make: Callable[[Tables], T]) -> Output[T]:
        return Output(stem, title, make, required, optional, text)

    return declare


@dataclass(frozen=True)
class Rendering:
    """What became of one output: the files written, or why there are none."""

    stem: str
    paths: tuple[Path, ...]
    skipped: str = ""


def declared(modules: Iterable[str]) -> dict[str, Output[Any]]:
    """The outputs that these modules declare, by stem and in its order."""
    values = [value for name in modules for value in vars(import_module(name)).values()]
    outputs = {value.stem: value for value in values if isinstance(value, Output)}
    return dict(sorted(outputs.items()))


def read_sources(folder: Path, required: Sequence[str], optional: Sequence[str]) -> Tables:
    """Read the CSVs of one output: all of `required`, and those of `optional` that are present.

    Raises NothingToDrawError if a required table or every optional one is absent, or all are empty;
    its message names no folder, as the report prints it. Raises UserError if a table is damaged.
    """
    missing = [name for name in required if not (folder / name).is_file()]
    if missing:
        raise NothingToDrawError(f"no {', '.join(missing)}")
    present = [name for name in (*required, *optional) if (folder / name).is_file()]
    if not present:
        raise NothingToDrawError(f"no {' nor '.join(optional)}")
    tables = {name: read_table(folder / name) for name in present}
    if not any(tables.values()):
        raise NothingToDrawError(f"no row in {', '.join(tables)}")
    return tables


def read_measured_sources(folder: Path, required: Sequence[str], optional: Sequence[str]) -> Tables:
    """Like `read_sources`, without the optional tables in which no row has status ok.

    Raises NothingToDrawError also where a required table, or every optional one, has no such row.
    """
    tables = read_sources(folder, required, optional)
    empty = [name for name, rows in tables.items() if not ok_rows(rows)]
    if any(name in required for name in empty) or len(empty) == len(tables):
        raise NothingToDrawError(f"no row with status ok in {', '.join(empty)}")
    return {name: rows for name, rows in tables.items() if name not in empty}
