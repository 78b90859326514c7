"""How fast is the job as one would first write it?

Method. The paper's baseline: Pillow's decode and resize in four DataLoader workers, batch 32, FP32,
parquet out, small images. Steady state: the clock starts when the warm-up batches are through and
stops when the file is complete. Stage seconds are busy time, summed over the processes that spent
it, so they can exceed the wall time; `wait_s` is the main process waiting for a batch. GPU and CPU
use are sampled at 10 Hz. The spans of the first repeat's first batches are the upper half of
figure 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import _end_to_end
from experiments._rows import Row
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell

RANK = 70
CSV = "t4-baseline-stages.csv"
TIMELINE_CSV = "timeline-baseline.csv"
TABLES = {CSV: _end_to_end.COLUMNS, TIMELINE_CSV: _end_to_end.TIMELINE_COLUMNS}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """One cell per repeat."""
    return _end_to_end.cells(plan, "t4", [options["recipe"]], options)


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row, and its timeline."""
    return {CSV: _end_to_end.table(records), TIMELINE_CSV: _end_to_end.timeline(records)}
