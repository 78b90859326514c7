"""Where does the time go, stage by stage, when nothing overlaps?

Method. Every image passes the nine stages sequentially in one thread (`num_workers=0`): workers
would hide CPU work behind the GPU. Three recipes on both image sets: Pillow; OpenCV; and
libjpeg-turbo with OpenCV's resize. A stage's time is the sum of its calls; the wall time is of the
complete pass; both are of the median repeat. Seconds per 100,000 images are scaled from the images
that ran, and say so.

A floor row is the same loop with stages that do nothing: what the harness itself costs. And because
OpenCV's bilinear resize does not antialias while Pillow's does, the pixels and vectors of each
recipe are compared with the first one's, untimed. A recipe whose output differs too much (`gate`)
gets no time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments import _rows
from experiments._cells import cell
from experiments._rows import Row
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, Recipe, Slice

RANK = 40
QUICK = True
#: Image set → table.
CSVS = {"small_256": "t4-serial-stages.csv", "original": "t4-serial-stages-original.csv"}
COLUMNS = _rows.columns(
    "recipe decoder resizer interpolation image_set corpus weights device device_kind",
    "n_images repeats batch_size",
    _rows.STAGE_COLUMNS,
    "unattributed_s wall_s wall_s_min wall_s_max img_per_s",
    "seconds_per_100k seconds_per_100k_origin decode_resize_share_without_forward",
    _rows.FIDELITY_COLUMNS,
    "n_failed median_kb median_megapixels origin status reason",
)
TABLES = dict.fromkeys(CSVS.values(), COLUMNS)


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """For each image set: fidelity once; then each recipe and the floor, repeated."""
    recipes = [
        plan.recipe(**choice, engine="serial", workers=0, dtype="fp32")
        for choice in options["recipes"]
    ]
    floor = replace(recipes[0], name="floor")
    grid = []
    for corpus in plan.slices(options["images"]).values():
        grid.append(_fidelity(plan, options, recipes[0], corpus))
        for repeat in plan.repeats("serial"):
            for protocol, recipe in [*(("serial", recipe) for recipe in recipes), ("floor", floor)]:
                label = f"{recipe.name}-{corpus.image_set}"
                grid.append(cell(plan, "serial", protocol, label, recipe, corpus, repeat=repeat))
    return grid


def _fidelity(plan: Plan, options: Mapping[str, Any], reference: Recipe, corpus: Slice) -> Cell:
    sample = plan.slice(corpus.image_set, min(options["fidelity"]["images"], corpus.n))
    params = {"recipes": options["recipes"], **options["fidelity"]}
    label = f"fidelity-{corpus.image_set}"
    return cell(plan, "serial", "fidelity", label, reference, sample, params=params)


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row per recipe, the floor last."""
    filled: dict[str, list[Row]] = {}
    for protocol in ("serial", "floor"):
        for (image_set, _), repeats in _rows.groups(records, protocol).items():
            filled.setdefault(CSVS[image_set], []).append(_row(repeats, records))
    return filled


def _row(repeats: Sequence[Record], records: Sequence[Record]) -> Row:
    row = _rows.new_row(repeats, COLUMNS)
    if repeats[0].cell.protocol == "floor":
        row |= dict.fromkeys(("decoder", "resizer", "interpolation"), "null")
    else:
        row |= _rows.fidelity_gate(records, repeats[0].cell)
    if row["status"] != "ok":
        return row
    if row["gate"] == "failed":
        return row | _rows.withheld("not the same output as the reference recipe's")
    return row | _rows.stage_columns(repeats)
