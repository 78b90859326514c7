"""Does a larger batch help when Pillow feeds it?

Method. The baseline recipe with batch sizes from 1 to 256, end to end, as `t4`. A batch that does
not fit the GPU's memory is a row with status `oom`, and the sweep goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from experiments import _end_to_end
from wallclock.run.plan import Plan
from wallclock.spec import Cell

RANK = 120
CSV = "batch-sweep.csv"
TABLES = {CSV: _end_to_end.COLUMNS}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """Every batch size, repeated."""
    recipes = [
        replace(options["recipe"], name=f"batch-{size}", batch_size=size)
        for size in options["batch_sizes"]
    ]
    return _end_to_end.cells(plan, "batch", recipes, options)


tables = _end_to_end.tables(CSV)
