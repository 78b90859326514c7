"""Figures 2 and 4: throughput against the batch size, and against the number of loader workers."""

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from experiments import batch, workers
from harness.csvfile import Row, distinct, join_distinct, number, ok_rows
from paper.figures import style
from paper.format import digits, percent
from paper.labels import DECODERS, SETS
from paper.rendering import NothingToDrawError, Tables, output

#: Colours of throughput, of the second quantity and of latency.
_RATE = "#00568C"
_SECOND = "#C24E00"
_LATENCY = "#6B3FA0"
#: Of a second decoder's throughput and wait.
_BESIDE = "#6B3FA0"
_BESIDE_LINE: dict[str, Any] = {"linestyle": ":", "marker": "D", "markersize": 4}
#: Behind a text that a line may cross.
_PLAIN: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.3}
_SECOND_LINE: dict[str, Any] = {"linestyle": "--", "marker": "s", "markersize": 4}
#: Settings that the title names where all rows share them.
_SETTINGS = ("decoder", "workers", "batch_size", "dtype")
#: What a sweep varies, as the title calls it.
_VARIED = {"batch_size": "batch size", "workers": "loader workers"}

#: Fewer points than this are not joined by a line, and have no knee.
_LEAST_POINTS = 4

Points = Sequence[tuple[float, float]]


def _setting_text(setting: str, value: str) -> str:
    """A setting in the title and in the caption."""
    if setting == "decoder":
        return f"{DECODERS[value]} decode"
    if setting == "workers":
        return f"{value} workers"
    if setting == "batch_size":
        return f"batch {value}"
    return value.upper()


@output(
    "fig-02-batch-sweep",
    "Throughput, latency of an image and peak GPU memory against the batch size",
    batch.CSV,
)
def draw_batches(tables: Tables) -> Figure:
    """Images per second over batch sizes; a GPU's peak memory, as its driver counts, on the right.

    Below, where it was measured, the 95th percentile of an image's latency. The knee and the
    largest batch within the user's bound are marked in all panels.
    """
    rows = tables[batch.CSV]
    memory = _points(rows, "peak_gpu_mem_gib", "batch_size")
    latency = _points(rows, "latency_p95_ms", "batch_size")
    if latency:
        figure, panels = _sweep(rows, batch.CSV, "batch_size", 4.3, (5, 3))
    else:
        figure, panels = _sweep(rows, batch.CSV, "batch_size", 3.1)
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
        right.set_ylabel("peak GPU memory, GiB (dashed)", color=_SECOND)
        _line(right, memory, _SECOND, **_SECOND_LINE)
        _name_points(right, memory, _SECOND, "{:.2f}".format)
    return figure


@output(
    "fig-04-workers-sweep",
    "Throughput against the number of loader workers, and the main process's wait for them",
    workers.CSV,
)
def draw_workers(tables: Tables) -> Figure:
    """Images per second over workers; below, the share of wall time that the main process waits.

    The first decoder's curve is the paper's; another's is beside it. The share tells on which side
    of the knee a point lies: what waits is not the bottleneck.
    """
    rows = tables[workers.CSV]
    first = rows[0]["decoder"] if rows else ""
    ours = [row for row in rows if row["decoder"] == first]
    beside = [row for row in rows if row["decoder"] != first]
    waits = _points(ours, "wait_share", "workers")
    height, ratios = (3.9, (5, 2)) if waits else (2.9, (1,))
    figure, panels = _sweep(ours, workers.CSV, "workers", height, ratios, beside)
    panels[-1].set_xlabel("loader workers (0: the main process loads)")
    if waits:
        panels[1].set_ylim(0, 1.18)
        panels[1].set_yticks((0, 0.5, 1), ("0", "50", "100"))
        panels[1].set_ylabel("main process\nwaiting, %", color=_SECOND)
        _line(panels[1], waits, _SECOND, **_SECOND_LINE)
        # A high point's number would leave the panel.
        low = [(count, share) for count, share in waits if share < 0.7]
        high = [(count, share) for count, share in waits if share >= 0.7]
        _name_points(panels[1], low, _SECOND, _whole_percent)
        _name_points(panels[1], high, _SECOND, _whole_percent, below=True)
        if others := _points(beside, "wait_share", "workers"):
            _line(panels[1], others, _BESIDE, **_BESIDE_LINE)
    return figure


def _whole_percent(share: float) -> str:
    return percent(share, 0)


def _sweep(
    rows: Sequence[Row],
    csv: str,
    setting: str,
    height: float,
    ratios: Sequence[int] = (1,),
    beside: Sequence[Row] = (),
) -> tuple[Figure, Sequence[Axes]]:
    """A figure with throughput over `setting` in the top one of its panels, and the panels.

    `beside`: rows of another decoder, as a second line. Raises NothingToDrawError if no row with
    status ok has a rate.
    """
    curves = [*rows, *beside]
    measured = ok_rows(curves)
    rates = _points(rows, "img_per_s", setting)
    if not rates:
        raise NothingToDrawError(f"no row in {csv} has a rate")
    figure = style.new_figure(height)
    panels = figure.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)
    axes = panels[0, 0]
    _set_x_axis(axes, setting, sorted({float(row[setting]) for row in curves}))
    axes.set_ylabel("images per second", color=_RATE)
    axes.yaxis.set_major_formatter("{x:,g}")
    others = _points(beside, "img_per_s", setting)
    axes.set_ylim(0, 1.25 * max(rate for _, rate in [*rates, *others]))
    _rates(axes, rows, setting, _RATE, {"marker": "o", "markersize": 4.5})
    _name_points(axes, rates, _RATE, digits)
    _mark_missing(axes, curves, setting)
    if others:
        _rates(axes, beside, setting, _BESIDE, _BESIDE_LINE)
        _name_points(axes, others, _BESIDE, digits, below=True)
        axes.legend(loc="lower right", fontsize=7)
    axes.set_title(_title(measured, setting))

    def name(row: Row) -> str:
        text = _setting_text(setting, row[setting])
        return f"{DECODERS[row['decoder']]}, {text}" if beside else text

    omissions = style.omission_remark(curves, name)
    style.place_caption(figure, measured, style.spread_remark(measured), omissions)
    return figure, list(panels[:, 0])


def _rates(
    axes: Axes, rows: Sequence[Row], setting: str, colour: str, look: dict[str, Any]
) -> None:
    """The rates of one decoder as a line, with the range of their repeats."""
    label = _setting_text("decoder", rows[0]["decoder"])
    _line(axes, _points(rows, "img_per_s", setting), colour, label=label, **look)
    lows = _points(rows, "img_per_s_min", setting)
    highs = _points(rows, "img_per_s_max", setting)
    for (x, low), (_, high) in zip(lows, highs, strict=True):
        if high > low:
            axes.plot([x, x], [low, high], color=colour, zorder=1.5, lw=0.9, marker="_", ms=4)


def _set_x_axis(axes: Axes, setting: str, ticks: Sequence[float]) -> None:
    if setting == "batch_size":
        axes.set_xscale("log", base=2)
        axes.set_xlim(ticks[0] / 1.4, ticks[-1] * 1.4)
    else:
        margin = 0.04 * (ticks[-1] - ticks[0] or 1)
        axes.set_xlim(ticks[0] - margin, ticks[-1] + margin)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def _title(measured: Sequence[Row], setting: str) -> str:
    """What varies, the images, and the settings that all rows share."""
    shared = []
    for other in _SETTINGS:
        values = distinct(measured, other)
        if other != setting and len(values) == 1:
            shared.append(_setting_text(other, values[0]))
    images = join_distinct(measured, "image_set", SETS)
    return f"Throughput against {_VARIED[setting]}, {images} ({', '.join(shared)})"


def _latency_panel(axes: Axes, points: Points) -> None:
    """Latency on a logarithmic axis, between limits that leave room for the points' numbers."""
    axes.set_yscale("log")
    axes.set_ylim(min(ms for _, ms in points) / 1.6, max(ms for _, ms in points) * 3)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.minorticks_off()
    axes.set_ylabel("latency of an\nimage, p95, ms", color=_LATENCY)
    _line(axes, points, _LATENCY, marker="D", markersize=4)
    _name_points(axes, points, _LATENCY, digits)


def _mark_choices(panels: Sequence[Axes], rows: Sequence[Row]) -> None:
    """A vertical line at the knee, and at the largest batch in the bound, with their names."""
    measured = ok_rows(rows)
    for row in measured:
        if row.get("knee") == "yes" and len(measured) >= _LEAST_POINTS:
            text = f"knee: batch {row['batch_size']}, within 2 % of the best rate"
            _mark_choice(panels, float(row["batch_size"]), 0.04, text)
    for row in measured:
        if row.get("largest_in_bound") == "yes":
            bound = digits(row["latency_bound_ms"])
            text = f"batch {row['batch_size']}: the largest with p99 under {bound} ms"
            _mark_choice(panels, float(row["batch_size"]), 0.13, text)


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
        bbox=_PLAIN,
    )


def _points(rows: Sequence[Row], column: str, setting: str) -> Points:
    """(setting, value) of the measured rows with a number in `column`, in order of the setting."""
    pairs = [(float(row[setting]), number(row.get(column, ""))) for row in ok_rows(rows)]
    return sorted((x, y) for x, y in pairs if y is not None)


def _line(axes: Axes, points: Points, colour: str, **look: Any) -> None:
    """Draw the points, joined by a line if they are enough to have a shape."""
    if len(points) < _LEAST_POINTS:
        look["linestyle"] = "none"
    axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.3, clip_on=False, **look)


def _name_points(
    axes: Axes, points: Points, colour: str, text: Callable[[float], str], *, below: bool = False
) -> None:
    """Write each point's value over it, or below."""
    offset, side = (-7, "top") if below else (7, "bottom")
    for x, y in points:
        axes.annotate(
            text(y),
            (x, y),
            (0, offset),
            textcoords="offset points",
            ha="center",
            va=side,
            color=colour,
            fontsize=7,
            bbox=_PLAIN,
        )


def _mark_missing(axes: Axes, rows: Sequence[Row], setting: str) -> None:
    """A cross at the axis for each setting without a measurement, with its status."""
    look: dict[str, Any] = {"ha": "center", "va": "bottom", "color": style.GREY, "fontsize": 7}
    for row in rows:
        if row["status"] == "ok":
            continue
        x = float(row[setting])
        status = "out of memory" if row["status"] == "oom" else row["status"]
        axes.plot([x], [0], color=style.GREY, marker="x", markersize=6, clip_on=False, zorder=3)
        axes.annotate(status, (x, 0), (0, 9), textcoords="offset points", rotation=90, **look)
