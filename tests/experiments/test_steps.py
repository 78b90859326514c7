"""`steps`: the ladder between the paper's two recipes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from experiments import steps
from tests.experiments import made
from tests.reference import reference_records
from wallclock.spec import Cell, Recipe


def choices(recipe: Recipe) -> dict[str, Any]:
    return {name: value for name, value in vars(recipe).items() if name != "name"}


def test_ladder_changes_one_choice_at_a_time(grid: Callable[..., list[Cell]]) -> None:
    fidelity, *cells = grid("steps", "repeats=1")
    ladder = [choices(cell.recipe) for cell in cells]
    changed = [{name for name in a if a[name] != b[name]} for a, b in pairwise(ladder)]
    assert changed == [
        {"decoder", "resizer", "interpolation"},
        {"workers"},
        {"batch_size"},
        {"dtype"},
    ]
    names = [cell.recipe.name for cell in cells]
    assert [recipe["name"] for recipe in fidelity.params["recipes"]] == names[1:]


def test_ladder_ends_are_the_papers_recipes() -> None:
    options = made.resolved("experiment=[steps]").experiments["steps"]
    ladder = steps._recipes(options["baseline"], options["optimized"])
    assert choices(ladder[0]) == choices(options["baseline"])
    assert choices(ladder[-1]) == choices(options["optimized"])


def test_a_row_per_step() -> None:
    rows = steps.tables(reference_records("steps"))[steps.CSV]
    assert [row["step"] for row in rows] == list(steps._LADDER)
    assert [row["recipe"] for row in rows] == [row["step"] for row in rows]
