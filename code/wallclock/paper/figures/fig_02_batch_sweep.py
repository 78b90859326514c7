"""Figure 2: throughput and peak GPU memory against the batch size."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wallclock.paper.csvfile import ok_rows
from wallclock.paper.figures import sweep
from wallclock.paper.figures.style import (
    Row,
    caption,
    distinct,
    left_out,
    new_figure,
    place_caption,
)
from wallclock.paper.labels import SETS
from wallclock.paper.rendering import NothingToDrawError, Tables

STEM = "fig-02-batch-sweep"
TITLE = "Throughput and peak GPU memory against the batch size"
SOURCES: tuple[str, ...] = ("batch-sweep.csv",)
OPTIONAL: tuple[str, ...] = ()


def draw(tables: Tables) -> Figure:
    """Images a second over a logarithmic axis of batch sizes; memory, where there is a GPU, on the right.

    Raises:
        NothingToDrawError: no row with status ok has a rate.
    """
    rows = tables[SOURCES[0]]
    measured = ok_rows(rows)
    rates = sweep.values(measured, "img_per_s", "batch_size")
    if not rates:
        raise NothingToDrawError(f"no row in {SOURCES[0]} has a rate")
    figure = new_figure(3.1)
    axes = figure.subplots()
    _throughput(axes, rows, rates)
    memory = sweep.values(measured, "peak_gpu_mem_gib", "batch_size")
    if memory:
        _memory(axes, memory)
    sets = " / ".join(SETS.get(name, name) for name in distinct(measured, "image_set"))
    settings = sweep.settings_of(measured, "decoder", "workers", "dtype")
    axes.set_title(f"Throughput against batch size, {sets} ({settings})")
    spread = (
        "vertical lines: slowest to fastest repeat"
        if any(row["repeats"] != "1" for row in measured)
        else ""
    )
    place_caption(
        figure, caption(measured, spread, left_out(rows, lambda row: f"batch {row['batch_size']}"))
    )
    return figure


def _throughput(axes: Axes, rows: Sequence[Row], rates: Sequence[tuple[float, float]]) -> None:
    sizes = sorted(float(row["batch_size"]) for row in rows)
    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes[0] / 1.4, sizes[-1] * 1.4)
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("images in a batch")
    axes.set_ylabel("images per second", color=sweep.RATE)
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_ylim(0, 1.25 * max(rate for _, rate in rates))
    sweep.line(axes, rates, sweep.RATE)
    sweep.spread(axes, ok_rows(rows), "img_per_s", "batch_size", sweep.RATE)
    sweep.name_points(axes, rates, sweep.RATE, sweep.rate_label)
    sweep.absent(axes, rows, "batch_size")


def _memory(axes: Axes, memory: Sequence[tuple[float, float]]) -> None:
    right = axes.twinx()
    right.spines["right"].set_visible(True)
    # Twice as high as needed: the two lines keep apart, and memory reads as what lies below.
    right.set_ylim(0, 2.1 * max(gib for _, gib in memory))
    right.set_ylabel("peak GPU memory, GiB (dashed)", color=sweep.OTHER)
    sweep.line(right, memory, sweep.OTHER, dashed=True)
    sweep.name_points(right, memory, sweep.OTHER, "{:.2f}".format)
