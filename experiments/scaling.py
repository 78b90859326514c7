"""Does a run of n images take startup + slope · n, at a memory that stays where it is? And with more threads?

Method. The fast recipe's loader alone (no forward pass, which on a CPU would hide it), from before it starts to its
last batch, each run in a process of its own; a few distinct images come round until n are loaded. The
line is fitted by least squares to the medians over repeats, weighted by 1/n so that the short runs count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments import Row, _rows
from wallclock import provenance
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, Slice
from wallclock.summary import linear_fit, median

CSV = "scaling.csv"
COLUMNS = (
    *(
        "what",
        "image_set",
        "corpus",
        "device",
        "device_kind",
        "cores",
        "threads",
        "batch_size",
        "settings",
    ),
    *(
        "n_images",
        "n_unique",
        "repeats",
        "wall_s",
        "wall_s_min",
        "wall_s_max",
        "img_per_s",
        "peak_memory_mib",
    ),
    *(
        "fit_startup_s",
        "fit_ms_per_image",
        "fit_r2",
        "over_one_thread",
        "median_kb",
        "median_megapixels",
    ),
    *("origin", "status", "reason"),
)
TABLES = {CSV: COLUMNS}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """Every n with all threads, then every number of threads at one n, repeated."""
    found = []
    for repeat in plan.repeats("scaling"):
        for image_set, corpus in plan.slices(options["images"]).items():
            for n in _counts(plan, options["n"][image_set]):
                found.append(_cell(plan, options, "images", n, 0, corpus, repeat))
            n = min(options["threads_n"][image_set], _counts(plan, options["n"][image_set])[-1])
            for threads in _threads():
                found.append(_cell(plan, options, "threads", n, threads, corpus, repeat))
    return found


def _counts(plan: Plan, wanted: Sequence[int]) -> list[int]:
    """The configured counts, up to the longest run that is allowed."""
    limit = min(plan.settings.scaling_max_images, plan.settings.n or plan.settings.scaling_max_images)
    return [n for n in wanted if n <= limit] or [limit]


def _threads() -> list[int]:
    cores = int(provenance.machine()["cores"])
    return sorted({*(2**i for i in range(cores.bit_length())), cores})


def _cell(
    plan: Plan,
    options: Mapping[str, Any],
    what: str,
    n: int,
    threads: int,
    corpus: Slice,
    repeat: int,
) -> Cell:
    size = options["batch_size"][corpus.image_set]
    recipe = replace(
        options["recipe"], batch_size=size, **({"workers": threads} if threads else {})
    )
    label = f"{what}-{threads or 'all'}-{n}"
    params = {**plan.params, "what": what, "n": n}
    return Cell("scaling", "load_n", label, repeat, recipe, corpus, plan.settings.model, params)


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row a run, with the line that its series makes."""
    made = [_row(repeats) for repeats in _rows.groups(records, "load_n").values()]
    for image_set in dict.fromkeys(row["image_set"] for row in made):
        series = [row for row in made if row["image_set"] == image_set and row["status"] == "ok"]
        _fit([row for row in series if row["what"] == "images"])
        _compare([row for row in series if row["what"] == "threads"])
    return {CSV: made}


def _row(repeats: Sequence[Record]) -> Row:
    first = repeats[0]
    recipe, corpus = first.cell.recipe, first.cell.corpus
    assert corpus is not None
    status, reason = _rows.status_of(repeats)
    row = _rows.blank(COLUMNS) | {
        name: value for name, value in _rows.where(first).items() if name in COLUMNS
    }
    row |= {
        "what": first.cell.params["what"],
        "image_set": corpus.image_set,
        "batch_size": recipe.batch_size,
    }
    row |= {"origin": "measured", "status": status, "reason": reason}
    return row | _measured(repeats) if status == "ok" else row


def _measured(repeats: Sequence[Record]) -> Row:
    values = _rows.median_pass(repeats).values
    walls = [_rows.wall_s(record) for record in repeats if record.ok]
    n, wall = int(values["n_loaded"]), median(walls)
    recipe = repeats[0].cell.recipe
    return {
        **{
            name: values[name]
            for name in ("settings", "cores", "n_unique", "median_kb", "median_megapixels")
        },
        **{
            "threads": recipe.workers or values["cores"],
            "n_images": n,
            "repeats": len(walls),
            "wall_s": wall,
        },
        **{"wall_s_min": min(walls), "wall_s_max": max(walls), "img_per_s": n / wall},
        "peak_memory_mib": max(record.values["peak_memory_mib"] for record in repeats if record.ok),
    }


def _fit(series: Sequence[Row]) -> None:
    """Write the line's startup, slope and R² into each of its rows; three points at least make one."""
    points = [(float(str(row["n_images"])), float(str(row["wall_s"]))) for row in series]
    if len(points) < 3:
        return
    startup, slope, r2 = linear_fit(
        [n for n, _ in points], [wall for _, wall in points], [1 / n for n, _ in points]
    )
    for row in series:
        row |= {"fit_startup_s": startup, "fit_ms_per_image": slope * 1e3, "fit_r2": r2}


def _compare(series: Sequence[Row]) -> None:
    one = next((row["img_per_s"] for row in series if row["threads"] == 1), None)
    for row in series:
        rate = row["img_per_s"]
        row["over_one_thread"] = (
            rate / one if isinstance(rate, float) and isinstance(one, float) else None
        )
