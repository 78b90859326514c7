"""How fast is it when nothing is left on the table: scaled decode, threads, uint8 batches?

Method. As `opt`, with the recipe `fast`. Each image is decoded no larger than its fidelity needs,
resized with Pillow's antialiasing filter, and written where the device fetches it from; the device
normalizes. The recipe claims to antialias, so the gate is stricter than the optimized recipe's: on
no image more than `max_loss_db` below full decode with OpenCV's area average, and never below the
optimized recipe on the same image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import _end_to_end
from experiments._rows import Row
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell

RANK = 90
CSV = "fast-end-to-end.csv"
TIMELINE_CSV = "timeline-fast.csv"
TABLES = {CSV: _end_to_end.COLUMNS, TIMELINE_CSV: _end_to_end.TIMELINE_COLUMNS}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """Fidelity once, then one cell per repeat."""
    return _end_to_end.cells(plan, "fast", [options["recipe"]], options)


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row, and its timeline."""
    return {CSV: _end_to_end.table(records), TIMELINE_CSV: _end_to_end.timeline(records)}
