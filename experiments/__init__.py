"""The experiments: one module a question, with its cells and its tables.

Each has
- `cells(plan, options)`: the grid of measurements, in table order;
- `TABLES`: the CSVs it makes, name → columns;
- `tables(records)`: their rows, derived from the records and nothing else;
- `READS`, where it judges other experiments: those whose records `tables` gets beside its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell

Row = dict[str, object]

#: Running order of `--experiment all`: quick answers first, the long runs after them.
ORDER = (
    "profiler",
    "decoders",
    "serialization",
    "serial",
    "cpu",
    "onnx",
    "t4",
    "opt",
    "fast",
    "steps",
    "workers",
    "batch",
    "frontier",
    "limits",
    "scaling",
    "predict",
    "layers",
)

#: Run only by name: of one's own images and job, not of the paper's.
OWN = ("diagnose",)

#: What `--quick` runs where no experiment is named: minutes on two CPU cores.
QUICK = ("profiler", "decoders", "serialization", "serial", "cpu")


class Experiment(Protocol):
    """What a module of this package offers."""

    TABLES: Mapping[str, Sequence[str]]

    def cells(self, plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
        """The grid, in table order."""

    def tables(self, records: Sequence[Record]) -> dict[str, list[Row]]:
        """The rows of each CSV that these records can fill."""


def reads(name: str) -> tuple[str, ...]:
    """The experiments whose records this one's tables are made from: itself, and those that it `READS`."""
    return (name, *getattr(load(name), "READS", ()))


def load(name: str) -> Experiment:
    """The experiment's module."""
    return import_module(f"experiments.{name}")
