"""How many DataLoader workers does the job need?

Method. libjpeg-turbo's decode and OpenCV's resize, batch 64, FP32, with 0 to 16 workers, end to end, as
`t4`. With 0 workers the main process loads and embeds in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments import Row, _end_to_end
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell

CSV = "workers-sweep.csv"
TABLES = {CSV: _end_to_end.COLUMNS}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """Fidelity once (the recipes load alike), then every number of workers, repeated."""
    corpus = _end_to_end.corpus_of(plan, options)
    recipes = [
        replace(options["recipe"], name=f"workers-{n}", workers=n) for n in options["workers"]
    ]
    timed = [
        _end_to_end.cell(plan, "workers", recipe.name, recipe, corpus, repeat)
        for repeat in plan.repeats("workers")
        for recipe in recipes
    ]
    return [_end_to_end.fidelity_cell(plan, "workers", recipes, options), *timed]


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row a number of workers."""
    return {CSV: _end_to_end.table(records)}
