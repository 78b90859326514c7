"""What does the same job cost without a GPU: one thread, one image at a time?

Method. The serial engine at batch 1 with torch and OpenCV limited to one thread, Pillow's decode
and resize, small images. One row.
"""

from experiments import common
from experiments.common import Cell, Options, Plan, Records, Tables, cell
from experiments.serial import cells as serial

RANK = 50
QUICK = True
CSV = "cpu-baseline-stages.csv"
COLUMNS = tuple(name for name in serial.COLUMNS if name not in common.FIDELITY_COLUMNS)
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
    return {CSV: common.table_rows(records, COLUMNS, common.stage_columns)}
