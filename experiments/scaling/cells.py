"""Does a job of n images take startup + slope · n, at constant memory?

Method. `wallclock embed` of up to a million ids, with the mock model at 0 ms and Parquet files: the
process from its start to its end, each run in a process of its own. The line is fitted by least
squares to the medians over repeats, with residuals in shares of a run's time, to which its noise is
proportional; R² is of seconds. With `files=distinct` each id has a file of its own bytes, of
`n_unique` pictures, and `deduplicate` looks for equal bytes; with `repeated` each picture is one
file, under many ids. `vs_line` is how much longer it took than the line through the runs up to
100,000 images says; `rss_growth`, by how much its memory later exceeded what it was when 100,000
were done.

What grows with n may be allocated before the first image is done. `peak_memory_mib`, of the process
and all below it, is therefore compared between jobs of different n: `memory_mib_per_100k` is the
slope of the least-squares line. `page_cache` is `partly warm` where the files do not fit into the
memory.
"""

from collections.abc import Sequence
from dataclasses import replace

from experiments import common
from experiments.common import Cell, Options, Plan, Record, Records, Row, Tables, cell
from harness.measures import linear_fit, median

RANK = 150
CSV = "scaling.csv"
COLUMNS = common.columns(
    "image_set corpus device device_kind cores batch_size settings",
    "n_images n_unique files deduplicate repeats wall_s wall_s_min wall_s_max img_per_s",
    "page_cache peak_memory_mib memory_mib_per_100k",
    "fit_startup_s fit_ms_per_image fit_r2 vs_line rss_growth",
    "median_kb median_megapixels origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
memory_mib_per_100k | MiB | measured | slope of the peak memory over the number of images
files | | setting | distinct: a file for each image; repeated: a few files, read repeatedly
deduplicate | yes or no | setting | identical files were looked for
img_per_s | images/s | measured | n_images over wall_s
fit_startup_s | s | measured | the fitted line's start
fit_ms_per_image | ms | measured | the fitted line's slope
fit_r2 | 0 to 1 | measured | R² of the fitted line
vs_line | relative | measured | wall time over that of the line through runs of up to 100,000
  images, less 1
rss_growth | relative | measured | growth of memory after 100,000 images
"""
#: What the paper measured, and extrapolated from.
_UP_TO = 100_000


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Every number of images, repeated."""
    longest = plan.settings.scaling_max_images
    longest = min(longest, plan.settings.n or longest)
    shared = {**plan.params, "files": options["files"]}
    shared["settings"] = {"shard": options["shard"], "device": "cpu"}
    grid = []
    for repeat in plan.repeats("scaling"):
        for image_set, corpus in plan.slices(options["images"]).items():
            size = options["batch_size"][image_set]
            recipe = replace(options["recipe"], batch_size=size, device="cpu", dtype="fp32")
            for n in [n for n in options["n"][image_set] if n <= longest] or [longest]:
                params = {**shared, "n": n}
                new = cell(plan, "scaling", "job", f"job-{n}", recipe, corpus, params=params)
                grid.append(replace(new, repeat=repeat, model=common.mock_model(plan)))
    return grid


def tables(records: Records) -> Tables:
    """One row per run, with the line that its series fits."""
    rows = common.table_rows(records, COLUMNS, _measured)
    for image_set in dict.fromkeys(row["image_set"] for row in rows):
        series = [row for row in rows if row["image_set"] == image_set and row["status"] == "ok"]
        _fit(series)
        _fit_memory(series)
    return {CSV: rows}


def _measured(repeats: Records) -> Row:
    measured = common.measured(repeats)
    median_repeat = common.median_repeat(repeats)
    values, n = median_repeat.values, common.count(median_repeat)
    wall = median([common.wall_s(record) for record in measured])
    return {
        **common.value_columns(
            median_repeat, "settings", "cores", "n_unique", "page_cache", "deduplicate"
        ),
        **common.wall_columns(repeats),
        "n_images": n,
        "wall_s": wall,
        "img_per_s": n / wall,
        "peak_memory_mib": max(record.values["peak_memory_mib"] for record in measured),
        "files": "distinct" if values["n_files"] == n else "repeated",
        "rss_growth": _rss_growth(median_repeat),
    }


def _rss_growth(record: Record) -> float | None:
    sampled = record.values["sampled"]
    later = [
        mib for mib, n in zip(sampled["rss_mib"], sampled["n_done"], strict=True) if n >= _UP_TO
    ]
    return max(later) / later[0] - 1 if len(later) > 1 else None


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
    for row in series:
        row["memory_mib_per_100k"] = slope * _UP_TO


def _line(series: Sequence[Row]) -> tuple[float, float, float]:
    counts = [row["n_images"] for row in series]
    walls = [row["wall_s"] for row in series]
    return linear_fit(counts, walls, [1 / wall for wall in walls])
