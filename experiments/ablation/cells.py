"""What does each step from DataLoader + Pillow to this suite's loader bring?

Method. The loader alone, files to a batch in host memory, in steady state, on all cores, one
process per cell, interleaved, for seconds and hundreds of images. The steps come one on top of the
other (`cumulative`) and one at a time on top of the baseline (`alone`); `speedup_vs_previous` is
against the rung before, for a step alone against the baseline. Gains and their intervals come from
pairs of repeats of one block (`pairs`): a step whose interval contains 1 cannot be told from none.
Scaled decode is Pillow's `draft` too, so that alone it needs no other library. Each rung's own
pictures are compared with Pillow's full decode, as in `frontier`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from experiments import common
from experiments.common import Cell, Options, Plan, Recipe, Records, Row, Tables, cell
from experiments.frontier import pairs
from harness import provenance

RANK = 135
CSV = "ablation.csv"
COLUMNS = common.columns(
    "step mode engine decoder resizer interpolation dct_scale normalize_on image_set corpus",
    "weights device device_kind cores batch_size n_images n_unique repeats",
    "wall_s wall_s_min wall_s_max img_per_s img_per_s_min img_per_s_max",
    pairs.columns("speedup_vs_baseline"),
    pairs.columns("speedup_vs_previous"),
    pairs.COLUMNS,
    common.FIDELITY_COLUMNS,
    "median_kb median_megapixels origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
step | | setting | the step that the row has
mode | | setting | cumulative: on top of the steps before; alone: on top of the baseline
speedup_vs_baseline | x | measured | rate over that of DataLoader and Pillow
speedup_vs_previous | x | measured | rate over that of the step before; of a step alone, over the
  baseline
"""

BASELINE = "baseline"
#: In the order in which they are added.
STEPS: Mapping[str, Mapping[str, str]] = {
    "libjpeg_turbo": {"decoder": "simplejpeg"},
    "scaled_decode": {"dct_scale": "auto"},
    "torch_resize": {"resizer": "torch"},
    "uint8": {"normalize_on": "device"},
    "threads": {"engine": "threads"},
    "native": {"decoder": "native", "resizer": "native"},
}


def cells(plan: Plan, options: Options) -> list[Cell]:
    """The baseline, the cumulative rungs and each step alone, on both image sets, repeated."""
    grid = []
    cores = provenance.machine()["cores"]
    for repeat in plan.repeats("ablation"):
        for image_set, corpus in plan.slices(options["images"]).items():
            size = options["batch_size"][image_set]
            start = replace(options["recipe"], workers=cores, batch_size=size, device="cpu")
            for mode, step, recipe in _rungs(start):
                params = {
                    **plan.params,
                    "seconds": plan.settings.loader_seconds,
                    "fidelity": options["fidelity"],
                    "bursts": options["bursts"],
                    "min_images": options["min_images"],
                    "mode": mode,
                    "step": step,
                }
                label = f"{mode}-{step}"
                new = cell(plan, "ablation", "loading", label, recipe, corpus, repeat=repeat)
                grid.append(replace(new, params=params))
    return grid


def _rungs(start: Recipe) -> Iterator[tuple[str, str, Recipe]]:
    """Mode, step and recipe of every rung. The first step alone is the first rung."""
    yield "cumulative", BASELINE, replace(start, name=BASELINE)
    recipe = start
    for step, change in STEPS.items():
        recipe = replace(recipe, name=step, **change)  # type: ignore[arg-type]
        yield "cumulative", step, recipe
    for step, change in list(STEPS.items())[1:]:
        yield "alone", step, replace(start, name=step, **change)  # type: ignore[arg-type]


def tables(records: Records) -> Tables:
    """One row per rung and image set."""
    rows = []
    rungs = common.groups(records)
    for (image_set, _), repeats in rungs.items():
        row = _row(repeats)
        for name, step in {"baseline": BASELINE, "previous": _previous(row)}.items():
            base = rungs.get((image_set, f"cumulative-{step}"), [])
            if row["status"] == "ok":
                row |= pairs.ratio_columns(f"speedup_vs_{name}", repeats, base)
        rows.append(row)
    return {CSV: rows}


def _previous(row: Row) -> str:
    names = [BASELINE, *STEPS]
    if row["mode"] == "alone" or row["step"] == BASELINE:
        return BASELINE
    return names[names.index(str(row["step"])) - 1]


def _row(repeats: Records) -> Row:
    params = repeats[0].cell.params
    row = common.new_row(repeats, COLUMNS) | {name: params[name] for name in ("mode", "step")}
    row = common.complete(row | {"gate": "not checked"}, repeats, _measured)
    return pairs.note_disturbance(row, repeats)


def _measured(repeats: Records) -> Row:
    compared = [record.values["fidelity"] for record in repeats if "fidelity" in record.values]
    fidelity = compared[0] if compared else {}
    timed = repeats[0].cell
    row = common.loader_columns(pairs.counting(repeats), "cores", "n_unique")
    return row | common.judge_fidelity(fidelity, timed.params["fidelity"], timed.model.weights)
