"""Every experiment by name: those of the paper in running order, then those on request."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from experiments.common import Cell, Options, Plan, Records, Tables
from experiments.sentences import MeasuredRows, TableRow
from harness.table import declaration
from wallclock.errors import UserError

_LAST = 1000
_FOLDER = Path(__file__).parent


class Experiment(Protocol):
    """What the `cells.py` of an experiment offers."""

    TABLES: Mapping[str, Sequence[str]]

    def cells(self, plan: Plan, options: Options) -> list[Cell]:
        """The grid, in table order."""

    def tables(self, records: Records) -> Tables:
        """The rows of each CSV that these records can fill."""


def load(name: str) -> Experiment:
    """The experiment's `cells.py`."""
    return import_module(f"experiments.{name}.cells")


def record_sources(name: str) -> tuple[str, ...]:
    """The experiments whose records fill this one's tables: itself, then those it `ALSO_READS`."""
    return (name, *getattr(load(name), "ALSO_READS", ()))


def meanings() -> Iterator[tuple[str, Iterable[str]]]:
    """What the columns of each experiment's own mean (`harness.table`), and its tables."""
    for name in _ALL:
        yield getattr(load(name), "MEANINGS", ""), load(name).TABLES


def check_columns(name: str) -> None:
    """Raise UserError: nothing says what a column of the experiment's tables holds."""
    for csv, columns in load(name).TABLES.items():
        for column in columns:
            if not declaration(csv, column):
                fix = f"add it to MEANINGS in experiments/{name}/cells.py or harness/columns.txt"
                raise UserError(f"{csv}: nothing says what the column {column} holds; {fix}")


def closing_sentence(ran: Iterable[str], read_measured: Callable[[str], Iterable[TableRow]]) -> str:
    """The sentence of the first of these experiments that has one; empty if none has.

    They are asked by `SENTENCE_RANK`, then in the order given. `read_measured` returns the measured
    rows of a CSV, text by column; none where there is no such table.
    """
    rows = MeasuredRows(read_measured)
    for name in sorted(ran, key=lambda name: getattr(load(name), "SENTENCE_RANK", _LAST)):
        write: Callable[[MeasuredRows], str] | None = getattr(load(name), "sentence", None)
        if write and (text := write(rows)):
            return text
    return ""


def figure_modules() -> list[str]:
    """The modules that draw the experiments' figures."""
    paths = sorted(_FOLDER.glob("*/figure*.py"))
    return [f"experiments.{path.parent.name}.{path.stem}" for path in paths]


def _ranked() -> list[str]:
    names = [path.parent.name for path in _FOLDER.glob("*/cells.py")]
    return sorted(names, key=lambda name: (getattr(load(name), "RANK", _LAST), name))


_ALL = _ranked()

#: Run only by name: for the user's own images and job, or another source's, not the paper's.
ON_REQUEST = tuple(name for name in _ALL if getattr(load(name), "ON_REQUEST", False))

#: Running order of `--experiment all`: quick answers first, the long runs after them.
ORDER = tuple(name for name in _ALL if name not in ON_REQUEST)

#: What `--quick` runs where no experiment is named: minutes on two CPU cores.
QUICK = tuple(name for name in ORDER if getattr(load(name), "QUICK", False))
