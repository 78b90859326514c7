"""What does each win bring on top of the ones before it, and in the wrong order?

Method. A ladder from the baseline recipe to the optimized one, a choice at a time: decode and
resize, workers, batch, FP16. Every step is measured end to end, as `t4` is; the paper measured the
two ends and estimated the steps between them. It also says that FP16 before decode brings nothing:
the rows of `order` reverse climb the same ladder on originals, from FP16 to decode and resize.
"""

from collections.abc import Sequence
from dataclasses import replace

from experiments import common, end_to_end
from experiments.common import Cell, Options, Plan, Recipe, Records, Tables
from wallclock.errors import check_name

RANK = 100
CSV = "throughput-steps.csv"
COLUMNS = common.columns("order step", end_to_end.COLUMNS)
TABLES = {CSV: COLUMNS}
MEANINGS = """
order | | setting | paper: in the paper's order; reverse: from FP16 to decode and resize
step | | setting | the step that the row adds
"""

#: Orders of the steps.
PAPER = "paper"
REVERSE = "reverse"
_PREFIX = f"{REVERSE}-"

#: The fields that each step takes from the optimized recipe.
_LADDER = {
    "baseline": (),
    "decode_resize": ("decoder", "resizer", "interpolation"),
    "workers": ("workers",),
    "batch": ("batch_size",),
    "fp16": ("dtype",),
}


def cells(plan: Plan, options: Options) -> list[Cell]:
    """On each image set fidelity once, then every configured step, repeated.

    In reverse on the last set only: on originals, where decode is what limits.
    """
    for step in (*options["steps"], *options["reverse"]):
        check_name(step, _LADDER, "step of experiment.steps")
    ends = options["baseline"], options["optimized"]
    measured = [recipe for recipe in _recipes(*ends) if recipe.name in options["steps"]]
    reverse = _recipes(*ends, options["reverse"])
    measured += [replace(recipe, name=_PREFIX + recipe.name) for recipe in reverse]
    grid = end_to_end.cells(plan, "steps", measured, options)
    last = grid[-1].images.image_set
    return [
        planned
        for planned in grid
        if planned.images.image_set == last or _order(planned.recipe.name) == PAPER
    ]


def tables(records: Records) -> Tables:
    """One row per image set, order and step; both orders start from the one baseline."""
    rows = []
    for row in end_to_end.tables(CSV)(records)[CSV]:
        name = str(row["recipe"])
        rows.append({"order": _order(name), "step": name.removeprefix(_PREFIX), **row})
    return {CSV: rows}


def _order(recipe: str) -> str:
    return REVERSE if recipe.startswith(_PREFIX) else PAPER


def _recipes(
    baseline: Recipe, optimized: Recipe, steps: Sequence[str] = tuple(_LADDER)
) -> list[Recipe]:
    """The baseline with the choices of `steps` added one after another."""
    ladder = []
    current = baseline
    for step in steps:
        choices = {name: getattr(optimized, name) for name in _LADDER[step]}
        current = replace(current, name=step, **choices)
        ladder.append(current)
    return ladder
