"""Figure 2: throughput against the batch size."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from experiments.batch import cells as batch
from harness.drawing import style, sweep
from harness.drawing.format import digits
from harness.drawing.rendering import Tables, output
from harness.table import Row, ok_rows

_LATENCY = "#6B3FA0"


@output(
    "fig-02-batch-sweep",
    "Throughput, latency of an image and peak GPU memory against the batch size",
    batch.CSV,
)
def draw(tables: Tables) -> Figure:
    """Images per second over batch sizes; a GPU's peak memory, as its driver counts, on the right.

    Below, where it was measured, the 95th percentile of an image's latency. The knee and the
    largest batch within the user's bound are marked in all panels.
    """
    rows = tables[batch.CSV]
    memory = sweep.points_of(rows, "peak_gpu_mem_gib", "batch_size")
    latency = sweep.points_of(rows, "latency_p95_ms", "batch_size")
    if latency:
        figure, panels = sweep.draw_sweep(rows, batch.CSV, "batch_size", 4.3, (5, 3))
    else:
        figure, panels = sweep.draw_sweep(rows, batch.CSV, "batch_size", 3.1)
    axes = panels[0]
    panels[-1].set_xlabel("images in a batch")
    if latency:
        _latency_panel(panels[1], latency)
    _mark_choices(panels, rows)
    if memory:
        right = axes.twinx()
        right.spines["right"].set_visible(True)
        # Twice as high as needed: the two lines keep apart, and memory reads as the lower one.
        right.set_ylim(0, 2.1 * max(gib for _, gib in memory))
        right.set_ylabel("peak GPU memory, GiB (dashed)", color=sweep.SECOND)
        sweep.draw_line(right, memory, sweep.SECOND, **sweep.SECOND_LINE)
        sweep.name_points(right, memory, sweep.SECOND, "{:.2f}".format)
    return figure


def _latency_panel(axes: Axes, points: sweep.Points) -> None:
    """Latency on a logarithmic axis, between limits that leave room for the points' numbers."""
    axes.set_yscale("log")
    axes.set_ylim(min(ms for _, ms in points) / 1.6, max(ms for _, ms in points) * 3)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.minorticks_off()
    axes.set_ylabel("latency of an\nimage, p95, ms", color=_LATENCY)
    sweep.draw_line(axes, points, _LATENCY, marker="D", markersize=4)
    sweep.name_points(axes, points, _LATENCY, digits)


def _mark_choices(panels: Sequence[Axes], rows: Sequence[Row]) -> None:
    """A vertical line at the knee, and at the largest batch in the bound, with their names."""
    measured = ok_rows(rows)
    for row in measured:
        if row.get("knee") and len(measured) >= sweep.LEAST_POINTS:
            text = f"knee: batch {row['batch_size']}, within 2 % of the best rate"
            _mark_choice(panels, row["batch_size"], 0.04, text)
    for row in measured:
        if row.get("largest_in_bound"):
            bound = digits(row["latency_bound_ms"])
            text = f"batch {row['batch_size']}: the largest with p99 under {bound} ms"
            _mark_choice(panels, row["batch_size"], 0.13, text)


def _mark_choice(panels: Sequence[Axes], x: float, height: float, text: str) -> None:
    """A vertical line through all panels, with its name at a share of the first one's height."""
    for axes in panels:
        axes.axvline(x, color=style.GREY, linewidth=0.8, linestyle=":", zorder=0.5)
    # On the side of the line with more room.
    side, gap = ("right", -4) if x > panels[0].get_xlim()[1] ** 0.5 else ("left", 4)
    panels[0].annotate(
        text,
        (x, height),
        (gap, 0),
        xycoords=panels[0].get_xaxis_transform(),
        textcoords="offset points",
        ha=side,
        color=style.GREY,
        fontsize=7,
        bbox=sweep.PLAIN,
    )
