"""Figure 12: throughput predicted from the costs of the stages against what was measured."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import predict
from paper.csvfile import Row, distinct, joined, ok_rows
from paper.figures import style
from paper.format import counted, digits, percent, prediction_errors
from paper.labels import CORPORA
from paper.rendering import NothingToDrawError, Tables, output
from wallclock.predict.model import UNCERTAINTY

#: Label, fill and marker by experiment; told apart by shape and lightness.
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
#: Reach of the two bands from the diagonal, relative, and their fills.
_BANDS = ((0.35, "#F1F1F1"), (UNCERTAINTY, "#DDDDDD"))


@output(
    "fig-12-predicted-vs-measured",
    "Throughput predicted from the costs of the stages, against what was measured end to end",
    predict.CSV,
    optional=(predict.SUMMARY_CSV,),
)
def draw(tables: Tables) -> Figure:
    """Predicted over measured images a second, both on logarithmic scales, equality as a line."""
    measured = ok_rows(tables[predict.CSV])
    rows = [row for row in measured if row["img_per_s"] and row["measured_img_per_s"]]
    if not rows:
        raise NothingToDrawError(f"no row in {predict.CSV} was both predicted and measured")
    figure = style.new_figure(4.4)
    axes = figure.subplots()
    rates = [float(row[name]) for row in rows for name in ("measured_img_per_s", "img_per_s")]
    ends = low, high = 0.6 * min(rates), 1.7 * max(rates)
    for band, shade in _BANDS:
        below, above = ([end * factor for end in ends] for factor in (1 - band, 1 + band))
        label = f"within {percent(band, 0)} of measured"
        axes.fill_between(ends, below, above, color=shade, lw=0, zorder=0, label=label)
    axes.plot(ends, ends, color=style.GREY, linewidth=0.8, zorder=1)
    for experiment in distinct(rows, "experiment"):
        of_one = [row for row in rows if row["experiment"] == experiment]
        for origin in ("measured", "paper"):
            _points(axes, [row for row in of_one if row["measured_origin"] == origin])
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.minorticks_off()
    axes.set_xlabel("measured end to end, images per second")
    axes.set_ylabel("predicted from the stages, images per second")
    axes.set_title("Predicted against measured throughput")
    axes.legend(loc="upper left", ncols=2)
    style.place_note(figure, *_remarks(rows, tables))
    return figure


def _points(axes: Axes, rows: Sequence[Row]) -> None:
    """Markers with their intervals; hollow where the measured number is the paper's."""
    if not rows:
        return
    name, colour, marker = _STYLES.get(rows[0]["experiment"], _OTHER)
    line, fill, label = colour, colour, name
    if rows[0]["measured_origin"] == "paper":
        line, fill, label = style.GREY, "white", f"the paper's {name}"
    columns = ("measured_img_per_s", "img_per_s", "img_per_s_low", "img_per_s_high")
    x, y, lows, highs = ([float(row[column]) for row in rows] for column in columns)
    for at, low, high in zip(x, lows, highs, strict=True):
        axes.plot([at, at], [low, high], color=line, linewidth=0.7, zorder=2)
    axes.plot(
        x, y, linestyle="none", marker=marker, markersize=5.5, markerfacecolor=fill, label=label,
        markeredgecolor=style.INK, markeredgewidth=0.6, zorder=3,
    )  # fmt: skip


def _remarks(rows: Sequence[Row], tables: Tables) -> list[str]:
    everything = tables[predict.CSV]
    ours = [row for row in rows if row["measured_origin"] == "measured"]
    parts = []
    if ours:
        images = sorted(float(row["n_images"]) for row in ours)
        span = " to ".join(dict.fromkeys((digits(images[0]), digits(images[-1]))))
        repeats = joined(ours, "repeats")
        shown = "1 repeat" if repeats == "1" else f"median of {repeats} repeats"
        parts = [
            joined(ours, "device"),
            joined(ours, "corpus", CORPORA),
            f"n = {len(ours)} cells of {span} images, {shown}",
            *(
                f"error: {prediction_errors(row)}"
                for row in tables.get(predict.SUMMARY_CSV, [])[:1]
            ),
        ]
    if len(ours) < len(rows):
        parts.append("hollow: the paper's own numbers (Tesla T4)")
        parts.append("two on one vertical: with and without overlap")
    if absent := len(everything) - len(ok_rows(everything)):
        parts.append(f"{counted(absent, 'cell')} not predicted or not measured: {predict.CSV}")
    return [*parts, "vertical lines: the prediction's interval"]
