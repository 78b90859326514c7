"""What does the same job cost without a GPU: one thread, one image at a time?

Method. The serial engine at batch 1 with torch and OpenCV held to one thread, Pillow's decode and
resize, small images. One row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import Row, _rows
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell

COLUMNS = (
    *(
        "recipe",
        "decoder",
        "resizer",
        "interpolation",
        "image_set",
        "corpus",
        "weights",
        "device",
        "device_kind",
    ),
    *("n_images", "repeats", "batch_size", *_rows.STAGE_COLUMNS, "unattributed_s"),
    *(
        "wall_s",
        "wall_s_min",
        "wall_s_max",
        "img_per_s",
        "seconds_per_100k",
        "seconds_per_100k_origin",
    ),
    *("decode_resize_share_without_forward", "n_failed", "median_kb", "median_megapixels"),
    *("origin", "status", "reason"),
)
CSV = "cpu-baseline-stages.csv"
TABLES = {CSV: COLUMNS}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """One cell a repeat, on the first image set that the corpus has."""
    recipe = options["recipe"]
    corpus = plan.first_slice(options["images"])
    label = f"cpu-{corpus.image_set}"
    return [
        Cell("cpu", "serial", label, repeat, recipe, corpus, plan.settings.model, plan.params)
        for repeat in plan.repeats("cpu")
    ]


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row."""
    return {
        CSV: [
            _row(repeats, image_set)
            for (image_set, _), repeats in _rows.groups(records, "serial").items()
        ]
    }


def _row(repeats: Sequence[Record], image_set: str) -> Row:
    record = repeats[0]
    recipe = record.cell.recipe
    status, reason = _rows.status_of(repeats)
    row = (
        _rows.blank(COLUMNS) | _rows.where(record) | {"image_set": image_set, "recipe": recipe.name}
    )
    row |= {
        "decoder": recipe.decoder,
        "resizer": recipe.resizer,
        "interpolation": recipe.interpolation,
    }
    row |= {
        "batch_size": recipe.batch_size,
        "origin": "measured",
        "status": status,
        "reason": reason,
    }
    if status == "ok":
        row |= _rows.stage_columns(repeats) | _rows.shape(_rows.median_pass(repeats).values)
    return row
