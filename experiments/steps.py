"""What does each win bring on top of the ones before it?

Method. A ladder from the baseline recipe to the optimized one, a choice at a time: decode and
resize, workers, batch, FP16. Every step is measured end to end, as `t4` is; the paper measured the
two ends and estimated the steps between them.
"""

from dataclasses import replace

from experiments import _common, _end_to_end
from experiments._common import Cell, Options, Plan, Recipe, Records, Tables

RANK = 100
CSV = "throughput-steps.csv"
TABLES = {CSV: _common.columns("step", _end_to_end.COLUMNS)}

#: The fields that each step takes from the optimized recipe.
_LADDER = {
    "baseline": (),
    "decode_resize": ("decoder", "resizer", "interpolation"),
    "workers": ("workers",),
    "batch": ("batch_size",),
    "fp16": ("dtype",),
}


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Fidelity once, then every configured step, repeated."""
    ladder = _recipes(options["baseline"], options["optimized"])
    measured = [recipe for recipe in ladder if recipe.name in options["steps"]]
    return _end_to_end.cells(plan, "steps", measured, options)


def tables(records: Records) -> Tables:
    """One row per step."""
    rows = _end_to_end.tables(CSV)(records)[CSV]
    return {CSV: [{"step": row["recipe"], **row} for row in rows]}


def _recipes(baseline: Recipe, optimized: Recipe) -> list[Recipe]:
    ladder, current = [], baseline
    for step, names in _LADDER.items():
        current = replace(current, name=step, **{name: getattr(optimized, name) for name in names})
        ladder.append(current)
    return ladder
