"""Throughput against a setting, in the first panel of a figure."""

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.drawing import style
from harness.drawing.format import digits
from harness.drawing.labels import DECODERS, SETS
from harness.drawing.rendering import NothingToDrawError
from harness.table import Row, distinct, join_distinct, ok_rows

#: Colours of throughput and of the second quantity.
_RATE = "#00568C"
SECOND = "#C24E00"
#: Of a second decoder's throughput and wait.
BESIDE = "#6B3FA0"
BESIDE_LINE: dict[str, Any] = {"linestyle": ":", "marker": "D", "markersize": 4}
#: Behind a text that a line may cross.
PLAIN: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.3}
SECOND_LINE: dict[str, Any] = {"linestyle": "--", "marker": "s", "markersize": 4}
#: Settings that the title names where all rows share them.
_SETTINGS = ("decoder", "workers", "batch_size", "dtype")
#: What a sweep varies, as the title calls it.
_VARIED = {"batch_size": "batch size", "workers": "loader workers"}
#: Fewer points than this are not joined by a line, and have no knee.
LEAST_POINTS = 4

Points = Sequence[tuple[float, float]]


def _setting_text(setting: str, value: Any) -> str:
    """A setting in the title and in the caption."""
    if setting == "decoder":
        return f"{DECODERS[value]} decode"
    if setting == "workers":
        return f"{value} workers"
    if setting == "batch_size":
        return f"batch {value}"
    return str(value).upper()


def draw_sweep(
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
    rates = points_of(rows, "img_per_s", setting)
    if not rates:
        raise NothingToDrawError(f"no row in {csv} has a rate")
    figure = style.new_figure(height)
    panels = figure.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)
    axes = panels[0, 0]
    _set_x_axis(axes, setting, sorted({row[setting] for row in curves}))
    axes.set_ylabel("images per second", color=_RATE)
    axes.yaxis.set_major_formatter("{x:,g}")
    others = points_of(beside, "img_per_s", setting)
    axes.set_ylim(0, 1.25 * max(rate for _, rate in [*rates, *others]))
    _rates(axes, rows, setting, _RATE, {"marker": "o", "markersize": 4.5})
    name_points(axes, rates, _RATE, digits)
    _mark_missing(axes, curves, setting)
    if others:
        _rates(axes, beside, setting, BESIDE, BESIDE_LINE)
        name_points(axes, others, BESIDE, digits, below=True)
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
    draw_line(axes, points_of(rows, "img_per_s", setting), colour, label=label, **look)
    lows = points_of(rows, "img_per_s_min", setting)
    highs = points_of(rows, "img_per_s_max", setting)
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


def points_of(rows: Sequence[Row], column: str, setting: str) -> Points:
    """(setting, value) of the measured rows with a number in `column`, in order of the setting."""
    pairs = [(row[setting], row.get(column)) for row in ok_rows(rows)]
    return sorted((x, y) for x, y in pairs if y is not None)


def draw_line(axes: Axes, points: Points, colour: str, **look: Any) -> None:
    """Draw the points, joined by a line if they are enough to have a shape."""
    if len(points) < LEAST_POINTS:
        look["linestyle"] = "none"
    axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.3, clip_on=False, **look)


def name_points(
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
            bbox=PLAIN,
        )


def _mark_missing(axes: Axes, rows: Sequence[Row], setting: str) -> None:
    """A cross at the axis for each setting without a measurement, with its status."""
    look: dict[str, Any] = {"ha": "center", "va": "bottom", "color": style.GREY, "fontsize": 7}
    for row in rows:
        if row["status"] == "ok":
            continue
        x = row[setting]
        status = "out of memory" if row["status"] == "oom" else row["status"]
        axes.plot([x], [0], color=style.GREY, marker="x", markersize=6, clip_on=False, zorder=3)
        axes.annotate(status, (x, 0), (0, 9), textcoords="offset points", rotation=90, **look)
