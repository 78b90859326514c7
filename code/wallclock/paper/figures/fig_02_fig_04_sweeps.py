"""Figures 2 and 4: throughput against the batch size, and against the number of loader workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import batch, workers
from wallclock.paper.csvfile import Row, distinct, number, ok_rows
from wallclock.paper.figures import style
from wallclock.paper.format import digits, percent
from wallclock.paper.labels import DECODERS
from wallclock.paper.rendering import NothingToDrawError, Tables, output

#: Colours of throughput and of the second quantity.
_RATE, _SECOND = "#00568C", "#C24E00"
_MEMORY = "peak_gpu_mem_gib"
#: A setting that all rows share, in the title.
_SETTINGS: dict[str, Callable[[str], str]] = {
    "decoder": lambda value: f"{DECODERS[value]} decode",
    "workers": lambda value: f"{value} workers",
    "batch_size": lambda value: f"batch {value}",
    "dtype": str.upper,
}

Points = Sequence[tuple[float, float]]


@output("fig-02-batch-sweep", "Throughput and peak GPU memory against the batch size", batch.CSV)
def draw_batches(tables: Tables) -> Figure:
    """Images a second over batch sizes; peak memory, where there is a GPU, on the right axis."""
    rows = tables[batch.CSV]
    rates, memory = (_points(rows, name, "batch_size") for name in ("img_per_s", _MEMORY))
    _check(rates, batch.CSV)
    figure = style.new_figure(3.1)
    axes = figure.subplots()
    sizes = sorted(float(row["batch_size"]) for row in rows)
    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes[0] / 1.4, sizes[-1] * 1.4)
    _throughput(axes, rows, rates, "batch_size", sizes)
    axes.set_xlabel("images in a batch")
    axes.set_title(f"Throughput against batch size, {_title(rows, 'batch_size')}")
    if memory:
        right = axes.twinx()
        right.spines["right"].set_visible(True)
        # Twice as high as needed: the two lines keep apart, and memory reads as the lower one.
        right.set_ylim(0, 2.1 * max(gib for _, gib in memory))
        right.set_ylabel("peak GPU memory, GiB (dashed)", color=_SECOND)
        _line(right, memory, _SECOND, linestyle="--", marker="s", markersize=4)
        _name_points(right, memory, _SECOND, "{:.2f}".format)
    _place_caption(figure, rows, lambda row: f"batch {row['batch_size']}")
    return figure


@output(
    "fig-04-workers-sweep",
    "Throughput against the number of loader workers, and the main process's wait for them",
    workers.CSV,
)
def draw_workers(tables: Tables) -> Figure:
    """Images a second over workers; below, the share of wall time in which the main process waits.

    The share tells on which side of the knee a point lies: what waits is not the bottleneck.

    Raises NothingToDrawError if no row with status ok has a rate.
    """
    rows = tables[workers.CSV]
    rates, waits = (_points(rows, name, "workers") for name in ("img_per_s", "wait_share"))
    _check(rates, workers.CSV)
    heights = (5, 2) if waits else (5,)
    figure = style.new_figure(3.9 if waits else 2.9)
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    top = panels[0, 0]
    counts = sorted(float(row["workers"]) for row in rows)
    margin = 0.04 * (counts[-1] - counts[0] or 1)
    top.set_xlim(counts[0] - margin, counts[-1] + margin)
    _throughput(top, rows, rates, "workers", counts)
    top.set_title(f"Throughput against loader workers, {_title(rows, 'workers')}")
    if waits:
        _waiting(panels[1, 0], waits)
    panels[-1, 0].set_xlabel("loader workers (0: the main process loads)")
    _place_caption(figure, rows, lambda row: f"{row['workers']} workers")
    return figure


def _points(rows: Sequence[Row], column: str, setting: str) -> Points:
    """(setting, value) of the measured rows with a number in `column`, in order of the setting."""
    pairs = [(float(row[setting]), number(row.get(column, ""))) for row in ok_rows(rows)]
    return sorted((x, y) for x, y in pairs if y is not None)


def _check(rates: Points, csv: str) -> None:
    if not rates:
        raise NothingToDrawError(f"no row in {csv} has a rate")


def _title(rows: Sequence[Row], varied: str) -> str:
    """Image set, and the settings that all rows share: `(PIL decode, 4 workers, FP32)`."""
    measured = ok_rows(rows)
    values = {name: distinct(measured, name) for name in _SETTINGS if name != varied}
    shared = [_SETTINGS[name](cells[0]) for name, cells in values.items() if len(cells) == 1]
    return f"{style.sets_of(measured)} ({', '.join(shared)})"


def _throughput(
    axes: Axes, rows: Sequence[Row], rates: Points, setting: str, ticks: Sequence[float]
) -> None:
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylabel("images per second", color=_RATE)
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_ylim(0, 1.25 * max(rate for _, rate in rates))
    _line(axes, rates, _RATE, marker="o", markersize=4.5)
    lows, highs = (_points(rows, f"img_per_s_{end}", setting) for end in ("min", "max"))
    for (x, low), (_, high) in zip(lows, highs, strict=True):
        if high > low:
            axes.plot([x, x], [low, high], color=_RATE, zorder=1.5, lw=0.9, marker="_", ms=4)
    _name_points(axes, rates, _RATE, digits)
    _mark_missing(axes, rows, setting)


def _waiting(axes: Axes, waits: Points) -> None:
    axes.set_ylim(0, 1.18)
    axes.set_yticks((0, 0.5, 1), ("0", "50", "100"))
    axes.set_ylabel("main process\nwaiting, %", color=_SECOND)
    _line(axes, waits, _SECOND, linestyle="--", marker="s", markersize=4)
    for below in (False, True):
        points = [(count, share) for count, share in waits if (share >= 0.7) == below]
        _name_points(axes, points, _SECOND, lambda share: percent(share, 0), below=below)


def _line(axes: Axes, points: Points, colour: str, **style: Any) -> None:
    x, y = zip(*points, strict=True)
    axes.plot(x, y, color=colour, linewidth=1.3, clip_on=False, **style)


def _name_points(
    axes: Axes, points: Points, colour: str, text: Callable[[float], str], *, below: bool = False
) -> None:
    offset, side = (-7, "top") if below else (7, "bottom")
    look: dict[str, Any] = {"ha": "center", "va": side, "color": colour, "fontsize": 7}
    for x, y in points:
        axes.annotate(text(y), (x, y), (0, offset), textcoords="offset points", **look)


def _mark_missing(axes: Axes, rows: Sequence[Row], setting: str) -> None:
    """A cross at the axis for each setting without a measurement, with its status."""
    look: dict[str, Any] = {"ha": "center", "va": "bottom", "color": style.GREY, "fontsize": 7}
    for row in (row for row in rows if row["status"] != "ok"):
        x, words = float(row[setting]), "out of memory" if row["status"] == "oom" else row["status"]
        axes.plot([x], [0], color=style.GREY, marker="x", markersize=6, clip_on=False, zorder=3)
        axes.annotate(words, (x, 0), (0, 9), textcoords="offset points", rotation=90, **look)


def _place_caption(figure: Figure, rows: Sequence[Row], name: Callable[[Row], str]) -> None:
    measured = ok_rows(rows)
    remarks = style.spread_remark(measured), style.left_out(rows, name)
    style.place_caption(figure, style.caption(measured, *remarks))
