"""How fast is it when nothing is left on the table: scaled decode, threads, uint8 batches?

Method. As `opt`, with the recipe `fast`. Each image is decoded no larger than its fidelity needs,
resized with Pillow's antialiasing filter, and lands where the device fetches it from; the device
normalizes. The recipe claims to antialias, so the gate is stricter than the optimized recipe's: on no
image more than `max_loss_db` below full decode with OpenCV's area average, and never below the
optimized recipe on the same image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import Row, _end_to_end
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell

CSV = "fast-end-to-end.csv"
TIMELINE = "timeline-fast.csv"
TABLES = {CSV: _end_to_end.COLUMNS, TIMELINE: _end_to_end.TIMELINE_COLUMNS}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """Fidelity once, then one cell a repeat."""
    return _end_to_end.one_recipe(plan, "fast", options)


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row, and its timeline."""
    return {CSV: _end_to_end.table(records), TIMELINE: _end_to_end.timeline(records)}
