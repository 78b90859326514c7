"""Where does the time go, stage by stage, when nothing overlaps?

Method. Every image passes the nine stages one after the other in one thread (`num_workers=0`):
workers would hide CPU work behind the GPU. Three recipes on both image sets: Pillow; OpenCV; and
libjpeg-turbo with OpenCV's resize. A stage's time is the sum of its calls; the wall is timed around
the whole pass; both are of the median repeat. Seconds per 100,000 images are scaled from the images
that ran, and say so.

Beside the recipes runs the floor: the same loop with stages that do nothing, which is what the
harness itself costs. And because OpenCV's bilinear resize does not antialias while Pillow's does, the
pixels and vectors of each recipe are compared with the first one's, untimed. A recipe whose output
is not the same picture (`gate`) gets no time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments import Row, _rows
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, Recipe, Slice

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
    *("decode_resize_share_without_forward", *_rows.FIDELITY_COLUMNS, "n_failed"),
    *("median_kb", "median_megapixels", "origin", "status", "reason"),
)
#: The table of each image set.
CSVS = {"small_256": "t4-serial-stages.csv", "original": "t4-serial-stages-original.csv"}
TABLES = dict.fromkeys(CSVS.values(), COLUMNS)


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """For each image set: fidelity once; then each recipe and the floor, repeated."""
    found = []
    recipes = [
        plan.recipe(**choice, engine="serial", workers=0, dtype="fp32")
        for choice in options["recipes"]
    ]
    for image_set, corpus in plan.slices(options["images"]).items():
        found.append(_fidelity(plan, options, recipes[0], corpus, image_set))
        for repeat in plan.repeats("serial"):
            for recipe in recipes:
                found.append(_cell(plan, "serial", recipe, corpus, repeat))
            found.append(_cell(plan, "floor", replace(recipes[0], name="floor"), corpus, repeat))
    return found


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row a recipe, the floor last."""
    found: dict[str, list[Row]] = {}
    for protocol in ("serial", "floor"):
        for (image_set, _), repeats in _rows.groups(records, protocol).items():
            found.setdefault(CSVS[image_set], []).append(_row(repeats, records, image_set))
    return found


def _cell(plan: Plan, protocol: str, recipe: Recipe, corpus: Slice, repeat: int) -> Cell:
    label = f"{recipe.name}-{corpus.image_set}"
    return Cell("serial", protocol, label, repeat, recipe, corpus, plan.settings.model, plan.params)


def _fidelity(
    plan: Plan, options: Mapping[str, Any], reference: Recipe, corpus: Slice, image_set: str
) -> Cell:
    n = min(options["fidelity"]["images"], corpus.n)
    params = {"recipes": options["recipes"], **options["fidelity"]}
    label = f"fidelity-{image_set}"
    return Cell(
        "serial",
        "fidelity",
        label,
        0,
        reference,
        plan.slice(image_set, n),
        plan.settings.model,
        params,
    )


def _row(repeats: Sequence[Record], records: Sequence[Record], image_set: str) -> Row:
    record = repeats[0]
    recipe = record.cell.recipe
    is_floor = record.cell.protocol == "floor"
    status, reason = _rows.status_of(repeats)
    row = (
        _rows.blank(COLUMNS) | _rows.where(record) | {"image_set": image_set, "recipe": recipe.name}
    )
    row |= (
        {"decoder": "null", "resizer": "null", "interpolation": "null"}
        if is_floor
        else _choices(recipe)
    )
    row |= {
        "batch_size": recipe.batch_size,
        "origin": "measured",
        "status": status,
        "reason": reason,
    }
    if not is_floor:
        row |= _gate(records, recipe, image_set)
    if status == "ok" and row["gate"] == "failed":
        row |= {
            "status": "gate failed",
            "reason": "not the same picture as the reference recipe's: no time counts",
        }
    elif status == "ok":
        row |= _rows.stage_columns(repeats) | _rows.shape(_rows.median_pass(repeats).values)
    return row


def _choices(recipe: Recipe) -> Row:
    return {
        "decoder": recipe.decoder,
        "resizer": recipe.resizer,
        "interpolation": recipe.interpolation,
    }


def _gate(records: Sequence[Record], recipe: Recipe, image_set: str) -> Row:
    """PSNR and cosine against the reference recipe, and whether they are good enough."""
    for record in records:
        if (
            record.cell.protocol != "fidelity"
            or not record.cell.corpus
            or record.cell.corpus.image_set != image_set
        ):
            continue
        reference = record.cell.recipe
        if reference is not None and reference.name == recipe.name:
            return {"gate": "reference"}
        return _rows.judge_fidelity(
            record.values.get("fidelity", {}).get(recipe.name, {}), record.cell.params
        )
    return {"gate": "not checked"}
