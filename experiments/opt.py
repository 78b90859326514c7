"""How fast is it with the paper's "all wins": libjpeg-turbo, eight workers, batch 64, FP16?

Method. As `t4`, with the optimized recipe. Its pixels and vectors are compared with Pillow's in
FP32, untimed: OpenCV's bilinear resize does not antialias, so part of the speedup is work left out,
and the row says how far the output moved (`psnr_db`, `cosine`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import _end_to_end
from experiments._rows import Row
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell

RANK = 80
CSV = "optimized-end-to-end.csv"
TIMELINE_CSV = "timeline-optimized.csv"
TABLES = {CSV: _end_to_end.COLUMNS, TIMELINE_CSV: _end_to_end.TIMELINE_COLUMNS}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """Fidelity once, then one cell per repeat."""
    return _end_to_end.cells(plan, "opt", [options["recipe"]], options)


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row, and its timeline."""
    return {CSV: _end_to_end.table(records), TIMELINE_CSV: _end_to_end.timeline(records)}
