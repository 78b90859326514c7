"""Figure 4: throughput against the number of loader processes."""

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

STEM = "fig-04-workers-sweep"
TITLE = "Throughput against the number of loader workers, and the main process's wait for them"
SOURCES: tuple[str, ...] = ("workers-sweep.csv",)
OPTIONAL: tuple[str, ...] = ()


def draw(tables: Tables) -> Figure:
    """Images a second; below it the share of the wall in which the main process waits for a batch.

    The share tells on which side of the knee a point lies: what waits is not the bottleneck.

    Raises:
        NothingToDrawError: no row with status ok has a rate.
    """
    rows = tables[SOURCES[0]]
    measured = ok_rows(rows)
    rates = sweep.values(measured, "img_per_s", "workers")
    if not rates:
        raise NothingToDrawError(f"no row in {SOURCES[0]} has a rate")
    waits = sweep.values(measured, "wait_share", "workers")
    figure = new_figure(3.9 if waits else 2.9)
    panels = figure.subplots(
        2 if waits else 1, 1, sharex=True, squeeze=False, height_ratios=(5, 2)[: 2 if waits else 1]
    )
    above = panels[0, 0]
    _throughput(above, rows, rates)
    sets = " / ".join(SETS.get(name, name) for name in distinct(measured, "image_set"))
    settings = sweep.settings_of(measured, "decoder", "batch_size", "dtype")
    above.set_title(f"Throughput against loader workers, {sets} ({settings})")
    if waits:
        _waiting(panels[1, 0], waits)
    panels[-1, 0].set_xlabel("loader workers (0: the main process loads)")
    spread = (
        "vertical lines: slowest to fastest repeat"
        if any(row["repeats"] != "1" for row in measured)
        else ""
    )
    place_caption(
        figure, caption(measured, spread, left_out(rows, lambda row: f"{row['workers']} workers"))
    )
    return figure


def _throughput(axes: Axes, rows: Sequence[Row], rates: Sequence[tuple[float, float]]) -> None:
    counts = sorted(float(row["workers"]) for row in rows)
    margin = 0.04 * (counts[-1] - counts[0] or 1)
    axes.set_xlim(counts[0] - margin, counts[-1] + margin)
    axes.set_xticks(counts, [f"{count:g}" for count in counts])
    axes.set_ylabel("images per second", color=sweep.RATE)
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_ylim(0, 1.22 * max(rate for _, rate in rates))
    sweep.line(axes, rates, sweep.RATE)
    sweep.spread(axes, ok_rows(rows), "img_per_s", "workers", sweep.RATE)
    sweep.name_points(axes, rates, sweep.RATE, sweep.rate_label)
    sweep.absent(axes, rows, "workers")


def _waiting(axes: Axes, waits: Sequence[tuple[float, float]]) -> None:
    shares = [(count, 100 * share) for count, share in waits]
    axes.set_ylim(0, 118)
    axes.set_yticks((0, 50, 100))
    axes.set_ylabel("main process\nwaiting, %", color=sweep.OTHER)
    sweep.line(axes, shares, sweep.OTHER, dashed=True)
    for below in (False, True):
        points = [(count, share) for count, share in shares if (share >= 70) == below]
        sweep.name_points(axes, points, sweep.OTHER, "{:.0f} %".format, below=below)
