"""One quantity against one setting, measured end to end: what figures 2 and 4 share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from wallclock.paper.csvfile import number
from wallclock.paper.figures.style import GREY, Row, distinct
from wallclock.paper.labels import DECODERS

#: Throughput, and the quantity on the other axis.
RATE, OTHER = "#00568C", "#C24E00"


def values(rows: Sequence[Row], column: str, setting: str) -> list[tuple[float, float]]:
    """(setting, value) of the rows that have a number in `column`, in order of the setting."""
    found = [(number(row[setting]), number(row.get(column, ""))) for row in rows]
    return sorted((x, y) for x, y in found if x is not None and y is not None)


def line(
    axes: Axes, points: Sequence[tuple[float, float]], colour: str, *, dashed: bool = False
) -> None:
    """A line with a marker at each measurement."""
    style = (
        {"linestyle": "--", "marker": "s", "markersize": 4}
        if dashed
        else {"marker": "o", "markersize": 4.5}
    )
    axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=colour,
        linewidth=1.3,
        clip_on=False,
        **style,  # type: ignore[arg-type]
    )


def spread(axes: Axes, rows: Sequence[Row], column: str, setting: str, colour: str) -> None:
    """A vertical line from the slowest to the fastest repeat of each measurement."""
    lows, highs = values(rows, f"{column}_min", setting), values(rows, f"{column}_max", setting)
    for (x, low), (_, high) in zip(lows, highs, strict=True):
        if high > low:
            axes.plot(
                [x, x],
                [low, high],
                color=colour,
                linewidth=0.9,
                marker="_",
                markersize=4,
                zorder=1.5,
            )


def rate_label(rate: float) -> str:
    """Three digits; whole images from a hundred a second on."""
    return f"{rate:,.0f}" if rate >= 99.95 else f"{rate:.3g}"


def name_points(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    colour: str,
    text: Callable[[float], str],
    *,
    below: bool = False,
) -> None:
    """Write each value beside its marker, on one side of the line."""
    offset = (0, -7) if below else (0, 7)
    for x, y in points:
        axes.annotate(
            text(y), (x, y), offset, textcoords="offset points", ha="center",
            va="top" if below else "bottom", color=colour, fontsize=7,
        )  # fmt: skip


def absent(axes: Axes, rows: Sequence[Row], setting: str) -> None:
    """Mark at the axis the settings that have no measurement, and say why in a word or three."""
    for row in rows:
        x = number(row[setting])
        if row["status"] == "ok" or x is None:
            continue
        words = "out of memory" if row["status"] == "oom" else row["status"]
        axes.plot([x], [0], color=GREY, marker="x", markersize=6, clip_on=False, zorder=3)
        axes.annotate(
            words, (x, 0), (0, 9), textcoords="offset points", rotation=90, ha="center", va="bottom",
            color=GREY, fontsize=7,
        )  # fmt: skip


def settings_of(rows: Sequence[Row], *columns: str) -> str:
    """The settings that all rows share, in words: `PIL decode, 4 workers, FP32`."""
    words = {
        "decoder": lambda value: f"{DECODERS.get(value, value)} decode",
        "workers": lambda value: f"{value} workers",
        "batch_size": lambda value: f"batch {value}",
        "dtype": str.upper,
    }
    parts = []
    for column in columns:
        found = distinct(rows, column)
        if len(found) == 1:
            parts.append(words[column](found[0]))
    return ", ".join(parts)
