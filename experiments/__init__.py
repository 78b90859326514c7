"""The experiments: one module per question, with its cells and its tables.

Every module of this package whose name has no leading underscore is an experiment. It defines

- `cells(plan, options)`: the grid of measurements, in table order;
- `TABLES`: the CSVs it writes, name → columns;
- `tables(records)`: their rows, derived from the records and nothing else;

and, where they differ from the defaults,

- `RANK`: its place in the running order of `--experiment all`; without one it runs last;
- `ON_REQUEST = True`: it runs only by name, as it is not of the paper;
- `second_round(plan, options, records)`: further cells, chosen by the records of the first;
- `expected_second_round(plan, options)`: cells that take as long, for the estimate of the time;
- `QUICK = True`: `--quick` runs it where no experiment is named;
- `ALSO_READS`: experiments whose records `tables` gets after its own;
- `sentence(rows)`: the comparison that ends a run, from the measured rows of the tables, or an
  empty text (`_sentences`);
- `SENTENCE_RANK`: of a run's experiments the lowest one's sentence is printed; those without one
  follow in the order of the run.

Its options are in `conf/experiment/<name>.yaml`.
"""

import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Protocol

from experiments._common import Cell, Options, Plan, Records, Tables
from experiments._sentences import MeasuredRows, TableRow

_LAST = 1000


class Experiment(Protocol):
    """What a module of this package offers."""

    TABLES: Mapping[str, Sequence[str]]

    def cells(self, plan: Plan, options: Options) -> list[Cell]:
        """The grid, in table order."""

    def tables(self, records: Records) -> Tables:
        """The rows of each CSV that these records can fill."""


def load(name: str) -> Experiment:
    """The experiment's module."""
    return import_module(f"{__name__}.{name}")


def record_sources(name: str) -> tuple[str, ...]:
    """The experiments whose records fill this one's tables: itself, then those it `ALSO_READS`."""
    return (name, *getattr(load(name), "ALSO_READS", ()))


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


def _ranked() -> list[str]:
    names = [info.name for info in pkgutil.iter_modules(__path__) if info.name[0] != "_"]
    return sorted(names, key=lambda name: (getattr(load(name), "RANK", _LAST), name))


_ALL = _ranked()

#: Run only by name: for the user's own images and job, or another source's, not the paper's.
ON_REQUEST = tuple(name for name in _ALL if getattr(load(name), "ON_REQUEST", False))

#: Running order of `--experiment all`: quick answers first, the long runs after them.
ORDER = tuple(name for name in _ALL if name not in ON_REQUEST)

#: What `--quick` runs where no experiment is named: minutes on two CPU cores.
QUICK = tuple(name for name in ORDER if getattr(load(name), "QUICK", False))
