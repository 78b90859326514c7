"""What does the same job cost without a GPU: one thread, one image at a time?

Method. The serial engine at batch 1 with torch and OpenCV limited to one thread, Pillow's decode
and resize, small images. One row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import _rows
from experiments._cells import cell
from experiments._rows import Row
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell

RANK = 50
QUICK = True
CSV = "cpu-baseline-stages.csv"
COLUMNS = _rows.columns(
    "recipe decoder resizer interpolation image_set corpus weights device device_kind",
    "n_images repeats batch_size",
    _rows.STAGE_COLUMNS,
    "unattributed_s wall_s wall_s_min wall_s_max img_per_s",
    "seconds_per_100k seconds_per_100k_origin decode_resize_share_without_forward",
    "n_failed median_kb median_megapixels origin status reason",
)
TABLES = {CSV: COLUMNS}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """One cell per repeat, on the first image set that the corpus has."""
    corpus = plan.first_slice(options["images"])
    label = f"cpu-{corpus.image_set}"
    return [
        cell(plan, "cpu", "serial", label, options["recipe"], corpus, repeat=repeat)
        for repeat in plan.repeats("cpu")
    ]


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row."""
    return {CSV: [_row(repeats) for repeats in _rows.groups(records, "serial").values()]}


def _row(repeats: Sequence[Record]) -> Row:
    row = _rows.new_row(repeats, COLUMNS)
    return row | _rows.stage_columns(repeats) if row["status"] == "ok" else row
