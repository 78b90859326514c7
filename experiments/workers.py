"""How many DataLoader workers does the job need?

Method. libjpeg-turbo's decode and OpenCV's resize, batch 64, FP32, with 0 to 16 workers, end to
end, as `t4`. With 0 workers the main process loads and embeds alternately.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from experiments import _end_to_end
from wallclock.run.plan import Plan
from wallclock.spec import Cell

RANK = 110
CSV = "workers-sweep.csv"
TABLES = {CSV: _end_to_end.COLUMNS}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """Fidelity once, then every number of workers, repeated."""
    recipes = [
        replace(options["recipe"], name=f"workers-{n}", workers=n) for n in options["workers"]
    ]
    return _end_to_end.cells(plan, "workers", recipes, options)


tables = _end_to_end.tables(CSV)
