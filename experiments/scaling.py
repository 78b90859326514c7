"""Does a run of n images take startup + slope · n, at constant memory? And with more threads?

Method. The fast recipe's loader alone (no forward pass, which on a CPU would hide it), from before
it starts to its last batch, each run in a process of its own; a few distinct images repeat until n
are loaded. The line is fitted by least squares to the medians over repeats, weighted by 1/n so that
the short runs count.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from experiments import _common
from experiments._common import Cell, Options, Plan, Records, Row, Tables, cell
from wallclock import provenance
from wallclock.summary import linear_fit, median

RANK = 150
CSV = "scaling.csv"
COLUMNS = _common.columns(
    "what image_set corpus device device_kind cores threads batch_size settings",
    "n_images n_unique repeats wall_s wall_s_min wall_s_max img_per_s peak_memory_mib",
    "fit_startup_s fit_ms_per_image fit_r2 speedup_vs_one_thread median_kb median_megapixels",
    "origin status reason",
)
TABLES = {CSV: COLUMNS}


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Every n with all threads, then every number of threads at one n, repeated."""
    new, cores = partial(cell, plan, "scaling", "load_n"), int(provenance.machine()["cores"])
    longest = plan.settings.scaling_max_images
    longest = min(longest, plan.settings.n or longest)
    grid = []
    for repeat in plan.repeats("scaling"):
        for image_set, corpus in plan.slices(options["images"]).items():
            recipe = replace(options["recipe"], batch_size=options["batch_size"][image_set])
            counts = [n for n in options["n"][image_set] if n <= longest] or [longest]
            runs = [("images", n, 0) for n in counts]
            at_most = min(options["threads_n"][image_set], counts[-1])
            powers = (2**i for i in range(cores.bit_length()))
            runs += [("threads", at_most, threads) for threads in sorted({*powers, cores})]
            for what, n, threads in runs:
                used = replace(recipe, workers=threads or recipe.workers)
                label, params = f"{what}-{threads or 'all'}-{n}", {"what": what, "n": n}
                params |= plan.params
                grid.append(new(label, used, corpus, repeat=repeat, params=params))
    return grid


def tables(records: Records) -> Tables:
    """One row per run, with the line that its series fits."""
    rows = []
    for repeats in _common.groups(records, "load_n").values():
        row = _common.new_row(repeats, COLUMNS) | {"what": repeats[0].cell.params["what"]}
        rows.append(_common.complete(row, repeats, _measured))
    for image_set in dict.fromkeys(row["image_set"] for row in rows):
        series = [row for row in rows if row["image_set"] == image_set and row["status"] == "ok"]
        _fit([row for row in series if row["what"] == "images"])
        _compare([row for row in series if row["what"] == "threads"])
    return {CSV: rows}


def _measured(repeats: Records) -> Row:
    measured = _common.measured(repeats)
    shown = _common.median_repeat(repeats)
    n, wall = _common.count(shown), median([_common.wall_s(record) for record in measured])
    return {
        **_common.value_columns(shown, "settings", "cores", "n_unique"),
        **_common.wall_columns(repeats),
        "threads": repeats[0].cell.recipe.workers or shown.values["cores"],
        "n_images": n,
        "wall_s": wall,
        "img_per_s": n / wall,
        "peak_memory_mib": max(record.values["peak_memory_mib"] for record in measured),
    }


def _fit(series: Sequence[Row]) -> None:
    """Write the line's startup, slope and R² into its rows; it takes at least three points."""
    if len(series) < 3:
        return
    counts = [float(str(row["n_images"])) for row in series]
    walls = [float(str(row["wall_s"])) for row in series]
    startup, slope, r2 = linear_fit(counts, walls, [1 / n for n in counts])
    for row in series:
        row |= {"fit_startup_s": startup, "fit_ms_per_image": slope * 1e3, "fit_r2": r2}


def _compare(series: Sequence[Row]) -> None:
    one = next((row["img_per_s"] for row in series if row["threads"] == 1), None)
    if one is None:
        return
    for row in series:
        row["speedup_vs_one_thread"] = float(str(row["img_per_s"])) / float(str(one))
