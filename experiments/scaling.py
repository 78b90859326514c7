"""Does a run of n images take startup + slope · n, at constant memory?

Method. The fast recipe's loader alone (no forward pass, which on a CPU would hide it), from before
it starts to its last batch, each run in a process of its own; a few distinct images repeat until n
are loaded. The line is fitted by least squares to the medians over repeats, with residuals in
shares of a run's time, to which its noise is proportional; R² is of seconds.

`what=job` is `wallclock embed` of as many ids, up to a million, with the mock model at 0 ms and
Parquet files: the process from its start to its end. With `files=distinct` each id has a file of
its own bytes, of `n_unique` pictures, and `deduplicate` looks for equal bytes; with `repeated` each
picture is one file, under many ids. `main_ms_per_image`: CPU of the main process's two threads,
which add up under one interpreter's lock. `vs_line` is how much longer it took than the line
through the runs up to 100,000 images says; `of_loader`, the rate of its loop, parts committed, in
that of the loader alone on as many images, both without their start; `rss_growth`, by how much its
memory later exceeded what it was when 100,000 were done.

What grows with n may be allocated before the first image is done. `peak_memory_mib`, of the process
and all below it, is therefore compared between jobs of different n: `memory_mib_per_100k` is the
slope of the least-squares line, `memory_exponent` the slope of both logarithms (0: constant, 1:
proportional to n). `page_cache` is `partly warm` where the files do not fit into the memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import log

from experiments import _common
from experiments._common import Cell, Options, Plan, Recipe, Record, Records, Row, Tables, cell
from harness.measures import linear_fit
from harness.spec import Slice
from wallclock.summary import median

RANK = 150
CSV = "scaling.csv"
COLUMNS = _common.columns(
    "what image_set corpus device device_kind cores threads batch_size settings",
    "n_images n_unique files deduplicate repeats wall_s wall_s_min wall_s_max img_per_s",
    "page_cache peak_memory_mib memory_mib_per_100k memory_exponent",
    "startup_share fit_startup_s fit_ms_per_image fit_r2 vs_line of_loader",
    "rss_growth main_ms_per_image",
    "median_kb median_megapixels origin status reason",
)
TABLES = {CSV: COLUMNS}
#: What the paper measured, and extrapolated from.
_UP_TO = 100_000


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Every n of the loader alone and of the job, repeated."""
    new = partial(cell, plan, "scaling", "load_n")
    longest = plan.settings.scaling_max_images
    longest = min(longest, plan.settings.n or longest)
    grid = []
    for repeat in plan.repeats("scaling"):
        for image_set, corpus in plan.slices(options["images"]).items():
            recipe = replace(options["recipe"], batch_size=options["batch_size"][image_set])
            counts = [n for n in options["n"][image_set] if n <= longest] or [longest]
            for n in counts:
                params = {"what": "images", "n": n, **plan.params}
                label = f"images-all-{n}"
                grid.append(new(label, recipe, corpus, repeat=repeat, params=params))
            grid += _jobs(plan, options, recipe, corpus, repeat, longest)
    return grid


def _jobs(
    plan: Plan, options: Options, recipe: Recipe, corpus: Slice, repeat: int, longest: int
) -> Iterator[Cell]:
    """The job on every number of images."""
    recipe = replace(recipe, device="cpu", dtype="fp32")
    for n in options["job"]["n"].get(corpus.image_set, ()):
        if n <= longest:
            settings = {"shard": options["job"]["shard"], "device": "cpu"}
            params = {**plan.params, "what": "job", "n": n, "settings": settings}
            params["files"] = options["job"]["files"]
            new = cell(plan, "scaling", "job", f"job-{n}", recipe, corpus, repeat=repeat)
            yield replace(new, model=_common.mock_model(plan), params=params)


def tables(records: Records) -> Tables:
    """One row per run, with the line that its series fits."""
    rows = _common.table_rows(records, COLUMNS, _measured, about=_about)
    for image_set in dict.fromkeys(row["image_set"] for row in rows):
        series = [row for row in rows if row["image_set"] == image_set and row["status"] == "ok"]
        for what in ("images", "job"):
            _fit([row for row in series if row["what"] == what])
        _fit_memory([row for row in series if row["what"] == "job"])
        _compare_with_loader(series)
    return {CSV: rows}


def _about(timed: Cell) -> Row:
    return {"what": timed.params["what"]}


def _measured(repeats: Records) -> Row:
    measured = _common.measured(repeats)
    median_repeat = _common.median_repeat(repeats)
    n = _common.count(median_repeat)
    wall = median([_common.wall_s(record) for record in measured])
    row = {
        **_common.value_columns(median_repeat, "settings", "cores", "n_unique", "page_cache"),
        **_common.wall_columns(repeats),
        "threads": repeats[0].cell.recipe.workers or median_repeat.values["cores"],
        "n_images": n,
        "wall_s": wall,
        "img_per_s": n / wall,
        "peak_memory_mib": max(record.values["peak_memory_mib"] for record in measured),
        "files": "repeated",
    }
    if median_repeat.cell.protocol == "job":
        row |= _job_columns(median_repeat)
    return row


def _job_columns(record: Record) -> Row:
    sampled = record.values["sampled"]
    later = [
        mib for mib, n in zip(sampled["rss_mib"], sampled["n_done"], strict=True) if n >= _UP_TO
    ]
    values, n = record.values, _common.count(record)
    row: Row = {
        "startup_share": values["startup_s"] / _common.wall_s(record),
        "files": "distinct" if values["n_files"] == n else "repeated",
        "deduplicate": values["deduplicate"],
        "main_ms_per_image": (values["main_cpu_s"] + values["commit_cpu_s"]) / n * 1e3,
    }
    if len(later) > 1:
        row["rss_growth"] = max(later) / later[0] - 1
    return row


def _fit(series: Sequence[Row]) -> None:
    """Write the line's startup, slope and R² into its rows; it takes at least three points."""
    if len(series) < 3:
        return
    startup, slope, r2 = _line(series)
    for row in series:
        row |= {"fit_startup_s": startup, "fit_ms_per_image": slope * 1e3, "fit_r2": r2}
    shorter = [row for row in series if row["n_images"] <= _UP_TO]
    if 2 < len(shorter) < len(series):
        startup, slope, _ = _line(shorter)
        for row in series:
            row["vs_line"] = row["wall_s"] / (startup + slope * row["n_images"]) - 1


def _fit_memory(series: Sequence[Row]) -> None:
    """Write how the jobs' memory grows with n into its rows.

    It takes at least three points, and as many images as it is said of: what a short job grows by
    are its buffers.
    """
    counts = [row["n_images"] for row in series]
    if len(series) < 3 or max(counts) < _UP_TO:
        return
    mib = [row["peak_memory_mib"] for row in series]
    _, slope, _ = linear_fit(counts, mib)
    _, exponent, _ = linear_fit([log(n) for n in counts], [log(value) for value in mib])
    for row in series:
        row |= {"memory_mib_per_100k": slope * _UP_TO, "memory_exponent": exponent}


def _line(series: Sequence[Row]) -> tuple[float, float, float]:
    counts = [row["n_images"] for row in series]
    walls = [row["wall_s"] for row in series]
    return linear_fit(counts, walls, [1 / wall for wall in walls])


def _compare_with_loader(series: Sequence[Row]) -> None:
    """Add the share of the loader's rate that each job reaches, on as many images."""
    loaded = {row["n_images"]: row for row in series if row["what"] == "images"}
    for row in series:
        alone = loaded.get(row["n_images"])
        if row["what"] == "job" and alone:
            loop_s = row["wall_s"] * (1 - row["startup_share"])
            begin_s = alone.get("fit_startup_s") or 0.0
            row["of_loader"] = (alone["wall_s"] - begin_s) / loop_s
