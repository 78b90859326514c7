"""Does a run of n images take startup + slope · n, at constant memory? And with more threads?

Method. The fast recipe's loader alone (no forward pass, which on a CPU would hide it), from before
it starts to its last batch, each run in a process of its own; a few distinct images repeat until n
are loaded. The line is fitted by least squares to the medians over repeats, weighted by 1/n so that
the short runs count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments import _rows
from experiments._cells import cell
from experiments._rows import Row
from wallclock import provenance
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, Slice
from wallclock.summary import linear_fit, median

RANK = 150
CSV = "scaling.csv"
COLUMNS = _rows.columns(
    "what image_set corpus device device_kind cores threads batch_size settings",
    "n_images n_unique repeats wall_s wall_s_min wall_s_max img_per_s peak_memory_mib",
    "fit_startup_s fit_ms_per_image fit_r2 speedup_vs_one_thread median_kb median_megapixels",
    "origin status reason",
)
TABLES = {CSV: COLUMNS}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """Every n with all threads, then every number of threads at one n, repeated."""
    grid = []
    for repeat in plan.repeats("scaling"):
        for image_set, corpus in plan.slices(options["images"]).items():
            counts = _counts(plan, options["n"][image_set])
            at_most = min(options["threads_n"][image_set], counts[-1])
            runs = [("images", n, 0) for n in counts]
            runs += [("threads", at_most, threads) for threads in _threads()]
            grid += [_cell(plan, options, run, corpus, repeat) for run in runs]
    return grid


def _counts(plan: Plan, wanted: Sequence[int]) -> list[int]:
    """The configured counts, up to the longest run that is allowed."""
    longest = plan.settings.scaling_max_images
    limit = min(longest, plan.settings.n or longest)
    return [n for n in wanted if n <= limit] or [limit]


def _threads() -> list[int]:
    cores = int(provenance.machine()["cores"])
    return sorted({*(2**i for i in range(cores.bit_length())), cores})


def _cell(
    plan: Plan, options: Mapping[str, Any], run: tuple[str, int, int], corpus: Slice, repeat: int
) -> Cell:
    what, n, threads = run
    recipe = replace(options["recipe"], batch_size=options["batch_size"][corpus.image_set])
    if threads:
        recipe = replace(recipe, workers=threads)
    label = f"{what}-{threads or 'all'}-{n}"
    params = {**plan.params, "what": what, "n": n}
    return cell(plan, "scaling", "load_n", label, recipe, corpus, repeat=repeat, params=params)


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row per run, with the line that its series fits."""
    rows = [_row(repeats) for repeats in _rows.groups(records, "load_n").values()]
    for image_set in dict.fromkeys(row["image_set"] for row in rows):
        series = [row for row in rows if row["image_set"] == image_set and row["status"] == "ok"]
        _fit([row for row in series if row["what"] == "images"])
        _compare([row for row in series if row["what"] == "threads"])
    return {CSV: rows}


def _row(repeats: Sequence[Record]) -> Row:
    row = _rows.new_row(repeats, COLUMNS) | {"what": repeats[0].cell.params["what"]}
    if row["status"] != "ok":
        return row
    measured = _rows.measured(repeats)
    values = _rows.median_pass(repeats).values
    n, wall = int(values["n_loaded"]), median([_rows.wall_s(record) for record in measured])
    return row | {
        **{name: values[name] for name in ("settings", "cores", "n_unique")},
        **_rows.size_columns(values),
        **_rows.wall_columns(repeats),
        "threads": repeats[0].cell.recipe.workers or values["cores"],
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
