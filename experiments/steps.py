"""What does each win bring on top of the ones before it?

Method. A ladder from the baseline recipe to the optimized one, a choice at a time: decode and resize,
workers, batch, FP16. Every step is measured end to end, as `t4` is; the paper measured the two ends
and estimated the steps between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments import Row, _end_to_end, _rows
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, Recipe

CSV = "throughput-steps.csv"
TABLES = {CSV: ("step", *_end_to_end.COLUMNS)}

#: What each step takes over from the optimized recipe.
_LADDER = {
    "baseline": (),
    "decode_resize": ("decoder", "resizer", "interpolation"),
    "workers": ("workers",),
    "batch": ("batch_size",),
    "fp16": ("dtype",),
}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """Fidelity once, then every step, repeated."""
    ladder, corpus = (
        _recipes(options["baseline"], options["optimized"]),
        _end_to_end.corpus_of(plan, options),
    )
    timed = [
        _end_to_end.cell(plan, "steps", recipe.name, recipe, corpus, repeat)
        for repeat in plan.repeats("steps")
        for recipe in ladder
    ]
    return [_end_to_end.fidelity_cell(plan, "steps", ladder[1:], options), *timed]


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row a step."""
    found = _rows.groups(records, "throughput")
    return {
        CSV: [
            {"step": step, **_end_to_end.row(repeats, records)}
            for (_, step), repeats in found.items()
        ]
    }


def _recipes(baseline: Recipe, optimized: Recipe) -> list[Recipe]:
    ladder, current = [], baseline
    for step, taken in _LADDER.items():
        current = replace(current, name=step, **{name: getattr(optimized, name) for name in taken})
        ladder.append(current)
    return ladder
