"""What does post-processing cost in pure Python: non-maximum suppression, three ways.

Method. Boxes as a detector proposes them, seeded; the same ones are suppressed by plain loops, by
vectorized numpy and by torchvision's kernel, in turn, in one process. What each keeps is compared
first: a way that keeps others has no time. A sample is an image; `gain` is the time of the plain
loops over that of the row, in each repeat. The claim is of a profiling guide, "Computer Vision
Under the Microscope": a suppression in pure Python, made native, was four times as fast. It names
no number of boxes; the claim is judged at 300, the most that several detectors keep.
"""

from functools import partial

from experiments import common
from experiments.common import Cell, Options, Plan, Recipe, Records, Row, Tables, cell, mock_model
from experiments.nms.measure import DISTRIBUTIONS, IMPLEMENTATIONS
from harness import peers

RANK = 33
CSV = "nms.csv"
COLUMNS = common.columns(
    "implementation boxes iou_threshold device device_kind n_images n_kept repeats",
    "p50_ms p90_ms mean_ms mean_ms_min mean_ms_max gain gain_min gain_max",
    "origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
implementation | | setting | python (plain loops), numpy or torchvision
boxes | count | setting | boxes that a detector proposes for an image
iou_threshold | 0 to 1 | setting | overlap above which a box is dropped
n_kept | count | computed | boxes of an image that are kept, in the mean
gain | x | measured | time of the plain loops over that of the row
"""
#: The way that the others are compared with.
_PLAIN = "python"


def cells(plan: Plan, options: Options) -> list[Cell]:
    """A cell for each number of boxes, repeated."""
    recipe = Recipe("nms", engine="serial", workers=0, device="cpu")
    names = ("n_images", "iou_threshold", "seconds")
    shared = {**plan.params, **{name: options[name] for name in names}}
    # Once a library is there, its row is measured.
    shared["installed"] = peers.installed(DISTRIBUTIONS)
    new = partial(cell, plan, "nms", "nms", recipe=recipe, corpus=None, model=mock_model(plan))
    return [
        new(f"boxes-{n}", repeat=repeat, params={**shared, "boxes": n})
        for repeat in plan.repeats("nms")
        for n in options["boxes"]
    ]


def tables(records: Records) -> Tables:
    """A row for each number of boxes and way."""
    return {
        CSV: [
            _row(repeats, name)
            for repeats in common.groups(records).values()
            for name in IMPLEMENTATIONS
        ]
    }


def _row(repeats: Records, name: str) -> Row:
    ways = [common.part_of(record, name) for record in repeats]
    params = repeats[0].cell.params
    row = common.new_row(ways, COLUMNS) | {"implementation": name}
    row |= {"boxes": params["boxes"], "iou_threshold": params["iou_threshold"]}
    unlike = [record.values["different"][name] for record in common.measured(ways)]
    wrong = "it keeps other boxes than pure Python" if any(unlike) else ""
    return common.complete(row, ways, partial(_measured, name), wrong)


def _measured(name: str, repeats: Records) -> Row:
    """Times of the way, and how many times as fast it was as the plain loops beside it."""
    measured = common.measured(repeats)
    row = common.timing_columns(repeats, name, (50, 90))
    row |= {"n_images": measured[0].cell.params["n_images"]}
    row |= {"n_kept": measured[0].values["n_kept"]}
    if name != _PLAIN:
        gains = [common.mean_ms(each, _PLAIN) / common.mean_ms(each, name) for each in measured]
        row |= common.with_spread("gain", gains)
    return row
