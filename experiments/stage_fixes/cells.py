"""What does each fix of a small stage bring, measured alone?

Method. One batch of noise, the stage as in the paper's recipe and with its fix in turn, in one
process: `normalize` on the host image by image, or on the device; `assemble` by a stack that is
copied into shared memory, or in place there; `h2d` from pageable or page-locked memory; `d2h` of
every patch's vector, or of the pooled one. `gain` is the plain time over the fixed one: of the
stage, not of a job. Table 3 shows it beside the fix. Without a GPU only `assemble` applies.
"""

from dataclasses import replace
from functools import partial

from experiments import common
from experiments.common import Cell, Options, Plan, Record, Records, Row, Tables, cell

RANK = 32
CSV = "stage-fixes.csv"
COLUMNS = common.columns(
    "stage plain fixed batch_size device device_kind n_images repeats",
    "plain_us fixed_us gain gain_min gain_max origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
stage | | setting | the stage that was measured alone
plain | | setting | what runs without the fix
fixed | | setting | what runs with the fix
plain_us | µs | measured | time per image without the fix
fixed_us | µs | measured | time per image with the fix
gain | x | measured | plain over fixed; the median repeat
"""
#: Stage → what runs without and with its fix, in words.
STAGES = {
    "normalize": ("the host, image by image", "the device, batch by batch"),
    "assemble": ("stacked, then copied to shared memory", "stacked in shared memory"),
    "h2d": ("pageable memory", "page-locked memory"),
    "d2h": ("every patch's vector", "the pooled vector"),
}


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Each stage, repeated."""
    recipe = plan.recipe(name="stage", engine="serial", workers=0, batch_size=options["batch_size"])
    recipe = replace(recipe, device=plan.settings.device, pin_memory=True)
    shared = {**plan.params, "seconds": options["seconds"]}
    new = partial(cell, plan, "stage_fixes", "stage_fix")
    return [
        new(stage, recipe, None, repeat=repeat, params={**shared, "stage": stage})
        for repeat in plan.repeats("stage_fixes")
        for stage in STAGES
    ]


def tables(records: Records) -> Tables:
    """One row per stage."""
    rows = common.table_rows(records, COLUMNS, _measured, about=_about)
    for row in rows:
        if row["status"] == "unavailable":
            row["status"] = "not applicable"
    return {CSV: rows}


def _about(timed: Cell) -> Row:
    plain, fixed = STAGES[timed.label]
    return {"stage": timed.label, "plain": plain, "fixed": fixed}


def _measured(repeats: Records) -> Row:
    """Microseconds of an image in the repeat with the median gain; the gains' range."""
    median_repeat = common.median_repeat(repeats, _gain)
    gains = [_gain(record) for record in common.measured(repeats)]
    return {
        "n_images": median_repeat.values["n_fixed"],
        "repeats": len(gains),
        "plain_us": _us(median_repeat, "plain"),
        "fixed_us": _us(median_repeat, "fixed"),
        **common.with_spread("gain", gains),
    }


def _gain(record: Record) -> float:
    return _us(record, "plain") / _us(record, "fixed")


def _us(record: Record, name: str) -> float:
    return record.seconds_in(name) / float(record.values[f"n_{name}"]) * 1e6
