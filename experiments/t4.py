"""How fast is the job as one would first write it?

Method. The paper's baseline: Pillow's decode and resize in four DataLoader workers, batch 32, FP32,
parquet out, small images. Steady state: the clock starts when the warm-up batches are through and
stops when the file is whole. Stage seconds are busy time, summed over the processes that spent it,
so they can exceed the wall; `wait_s` is the main process waiting for a batch. GPU and CPU use are
sampled at 10 Hz. The spans of the first repeat's first batches are the upper half of figure 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import Row, _end_to_end
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell

CSV = "t4-baseline-stages.csv"
TIMELINE = "timeline-baseline.csv"
TABLES = {CSV: _end_to_end.COLUMNS, TIMELINE: _end_to_end.TIMELINE_COLUMNS}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """One cell a repeat."""
    recipe, corpus = options["recipe"], _end_to_end.corpus_of(plan, options)
    return [
        _end_to_end.cell(plan, "t4", recipe.name, recipe, corpus, repeat)
        for repeat in plan.repeats("t4")
    ]


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row, and its timeline."""
    return {CSV: _end_to_end.table(records), TIMELINE: _end_to_end.timeline(records)}
