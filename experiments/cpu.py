"""What does the same job cost without a GPU: one thread, one image at a time?

Method. The serial engine at batch 1 with torch and OpenCV limited to one thread, Pillow's decode
and resize, small images. One row.
"""

from __future__ import annotations

from experiments import _common
from experiments._common import Cell, Options, Plan, Records, Tables, cell

RANK = 50
QUICK = True
CSV = "cpu-baseline-stages.csv"
COLUMNS = _common.columns(
    "recipe decoder resizer interpolation image_set corpus weights device device_kind",
    "n_images repeats batch_size",
    _common.STAGE_COLUMNS,
    "unattributed_s wall_s wall_s_min wall_s_max img_per_s",
    "seconds_per_100k seconds_per_100k_origin decode_resize_share_without_forward",
    "n_failed median_kb median_megapixels origin status reason",
)
TABLES = {CSV: COLUMNS}


def cells(plan: Plan, options: Options) -> list[Cell]:
    """One cell per repeat, on the first image set that the corpus has."""
    corpus = plan.first_slice(options["images"])
    label = f"cpu-{corpus.image_set}"
    return [
        cell(plan, "cpu", "serial", label, options["recipe"], corpus, repeat=repeat)
        for repeat in plan.repeats("cpu")
    ]


def tables(records: Records) -> Tables:
    """One row."""
    repeats = _common.groups(records, "serial").values()
    rows = [(_common.new_row(of_one, COLUMNS), of_one) for of_one in repeats]
    return {CSV: [_common.complete(*row, _common.stage_columns) for row in rows]}
