"""Figure 12: what each end-to-end cell was predicted to reach from the costs of its parts, and what it reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wallclock.paper.csvfile import number, ok_rows
from wallclock.paper.figures.style import GREY, INK, Row, distinct, new_figure, place_caption
from wallclock.paper.figures.sweep import rate_label
from wallclock.paper.labels import CORPORA
from wallclock.paper.rendering import NothingToDrawError, Tables
from wallclock.summary import median

STEM = "fig-12-predicted-vs-measured"
TITLE = "Throughput predicted from the costs of the parts, against what was measured end to end"
SOURCES: tuple[str, ...] = ("prediction.csv",)
OPTIONAL: tuple[str, ...] = ()

#: Fill and marker, told apart by shape and lightness; experiments that are not listed get the last.
_STYLES: Mapping[str, tuple[str, str, str]] = {
    "predict": ("proving set", "#00568C", "o"),
    "t4": ("baseline", "#D55E00", "s"),
    "opt": ("optimized", "#D55E00", "D"),
    "fast": ("recipe=fast", "#D55E00", "*"),
    "steps": ("steps", "#E5A9CE", "^"),
    "workers": ("worker sweep", "#2FB48F", "v"),
    "batch": ("batch sweep", "#F0E442", "P"),
    "frontier": ("loaders alone", "#AAAFB6", "X"),
}
_OTHER = ("other engines", "#AAAFB6", "X")
#: How far from the diagonal the two bands reach, relative.
_BANDS = (0.35, 0.15)


def draw(tables: Tables) -> Figure:
    """Predicted over measured images a second, both on logarithmic scales, equality as a line.

    Raises:
        NothingToDrawError: no row has both.
    """
    rows = [
        row
        for row in ok_rows(tables[SOURCES[0]])
        if number(row["img_per_s"]) and number(row["measured_img_per_s"])
    ]
    if not rows:
        raise NothingToDrawError(f"no row in {SOURCES[0]} was both predicted and measured")
    figure = new_figure(4.4)
    axes = figure.subplots()
    rates = [
        rate for row in rows for rate in (_rate(row, "measured_img_per_s"), _rate(row, "img_per_s"))
    ]
    low, high = 0.6 * min(rates), 1.7 * max(rates)
    _diagonal(axes, low, high)
    for experiment in distinct(rows, "experiment"):
        for origin in ("measured", "paper"):
            _points(
                axes,
                [
                    row
                    for row in rows
                    if (row["experiment"], row["measured_origin"]) == (experiment, origin)
                ],
            )
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.minorticks_off()
    axes.set_xlabel("measured end to end, images per second")
    axes.set_ylabel("predicted from the parts, images per second")
    axes.set_title("Predicted against measured throughput")
    axes.legend(loc="upper left", ncols=2)
    place_caption(figure, _caption(rows, tables[SOURCES[0]]))
    return figure


def _rate(row: Row, column: str) -> float:
    found = number(row[column])
    assert found is not None
    return found


def _diagonal(axes: Axes, low: float, high: float) -> None:
    for band, shade in zip(_BANDS, ("#F1F1F1", "#DDDDDD"), strict=True):
        below, above = ([end * factor for end in (low, high)] for factor in (1 - band, 1 + band))
        axes.fill_between(
            [low, high],
            below,
            above,
            color=shade,
            linewidth=0,
            zorder=0,
            label=f"within {band:.0%} of measured",
        )
    axes.plot([low, high], [low, high], color=GREY, linewidth=0.8, zorder=1)


def _points(axes: Axes, rows: Sequence[Row]) -> None:
    """Markers with their intervals; hollow where the measured number is the paper's."""
    if not rows:
        return
    name, colour, marker = _STYLES.get(rows[0]["experiment"], _OTHER)
    ours = rows[0]["measured_origin"] == "measured"
    if not ours:
        name = f"the paper's {name}"
    x = [_rate(row, "measured_img_per_s") for row in rows]
    y = [_rate(row, "img_per_s") for row in rows]
    ends = [[_rate(row, f"img_per_s_{end}") for row in rows] for end in ("low", "high")]
    for at, low, high in zip(x, *ends, strict=True):
        axes.plot([at, at], [low, high], color=colour if ours else GREY, linewidth=0.7, zorder=2)
    axes.plot(
        x, y, linestyle="none", marker=marker, markersize=5.5, markerfacecolor=colour if ours else "white",
        markeredgecolor=INK, markeredgewidth=0.6, label=name, zorder=3,
    )  # fmt: skip


def _caption(rows: Sequence[Row], everything: Sequence[Row]) -> str:
    ours = [row for row in rows if row["measured_origin"] == "measured"]
    paper = len(rows) - len(ours)
    parts = []
    if ours:
        errors = [abs(_rate(row, "error")) for row in ours]
        images = sorted(_rate(row, "n_images") for row in ours)
        span = " to ".join(dict.fromkeys((rate_label(images[0]), rate_label(images[-1]))))
        corpora = " / ".join(CORPORA.get(name, name) for name in distinct(ours, "corpus"))
        parts = [" / ".join(distinct(ours, "device")), corpora]
        repeats = " / ".join(distinct(ours, "repeats"))
        shown = "1 repeat" if repeats == "1" else f"median of {repeats} repeats"
        parts += [f"n = {len(ours)} cells of {span} images, {shown}"]
        parts += [f"error: median {median(errors):.0%}, worst {max(errors):.0%}"]
    if paper:
        parts += [
            "hollow: the paper's own numbers (Tesla T4)",
            "two above one another: with and without overlap",
        ]
    left = [row for row in everything if row["status"] != "ok"]
    parts += [f"{len(left)} cells not predicted or not measured: see {SOURCES[0]}"] if left else []
    return " · ".join([*parts, "vertical lines: the prediction's interval"])
