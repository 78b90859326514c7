"""Where does the time go, stage by stage, when nothing overlaps?

Method. Every image passes the nine stages sequentially in one thread (`num_workers=0`): workers
would hide CPU work behind the GPU. Three recipes on both image sets: Pillow; OpenCV; and
libjpeg-turbo with OpenCV's resize. A stage's time is the sum of its calls; the wall time is of the
complete pass; both are of the median repeat. `_min` and `_max` are of the same quantity, computed
in every repeat. Seconds per 100,000 images are scaled from the images that ran, and say so.

A floor row is the same loop with stages that do nothing: what the harness itself costs. And because
OpenCV's bilinear resize does not antialias while Pillow's does, the pixels and vectors of each
recipe are compared with the first one's, untimed. A recipe whose output differs too much (`gate`)
gets no time.
"""

from dataclasses import replace
from functools import partial

from experiments import common
from experiments.common import Cell, Options, Plan, Records, Row, Tables, cell

RANK = 40
QUICK = True
#: Image set → table.
CSVS = {"small_256": "t4-serial-stages.csv", "original": "t4-serial-stages-original.csv"}
COLUMNS = common.columns(
    "recipe decoder resizer interpolation image_set corpus weights device device_kind",
    "n_images repeats batch_size",
    common.with_limits(common.STAGE_COLUMNS),
    "unattributed_s",
    common.with_limits("decode_resize_share wall_s img_per_s seconds_per_100k"),
    "seconds_per_100k_origin",
    common.FIDELITY_COLUMNS,
    "sm_clock_mhz throttle_reasons n_failed median_kb median_megapixels origin status reason",
)
TABLES = dict.fromkeys(CSVS.values(), COLUMNS)
MEANINGS = """
wall_s | s | measured | wall time of all images, one after another; the median repeat
"""


def cells(plan: Plan, options: Options) -> list[Cell]:
    """For each image set: fidelity once; then each recipe and the floor, repeated."""
    recipes = [
        plan.recipe(**choice, engine="serial", workers=0, dtype="fp32")
        for choice in options["recipes"]
    ]
    passes = [
        *((recipe, "serial") for recipe in recipes),
        (replace(recipes[0], name="floor"), "floor"),
    ]
    fidelity = {"recipes": options["recipes"], **options["fidelity"]}
    new = partial(cell, plan, "serial")
    grid = []
    for image_set, corpus in plan.slices(options["images"]).items():
        sample = plan.slice(image_set, min(fidelity["images"], corpus.n))
        label = f"fidelity-{image_set}"
        grid.append(new("fidelity", label, recipes[0], sample, params=fidelity))
        for repeat in plan.repeats("serial"):
            for recipe, protocol in passes:
                label = f"{recipe.name}-{image_set}"
                grid.append(new(protocol, label, recipe, corpus, repeat=repeat))
    return grid


def tables(records: Records) -> Tables:
    """One row per recipe, the floor last."""
    filled: Tables = {}
    for protocol in ("serial", "floor"):
        for (image_set, _), repeats in common.groups(records, protocol).items():
            filled.setdefault(CSVS[image_set], []).append(_row(repeats, records))
    return filled


def _row(repeats: Records, records: Records) -> Row:
    row = common.new_row(repeats, COLUMNS)
    if repeats[0].cell.protocol == "floor":
        row |= dict.fromkeys(("decoder", "resizer", "interpolation"), "null")
    else:
        row |= common.fidelity_gate(records, repeats[0].cell)
    failed = row["gate"] == "failed"
    wrong = "not the same output as the reference recipe's" if failed else ""
    return common.complete(row, repeats, _measured, wrong)


def _measured(repeats: Records) -> Row:
    return common.stage_columns(repeats) | common.clock_columns(repeats)
