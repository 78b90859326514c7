"""Figure 12: throughput predicted from the costs of the stages against what was measured."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import predict
from paper.csvfile import Row, distinct, join_distinct, ok_rows
from paper.figures import style
from paper.format import count_noun, digits, percent
from paper.labels import CORPORA
from paper.rendering import NothingToDrawError, Tables, output
from wallclock.predict.intervals import RATE_ERROR

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
_BANDS = ((RATE_ERROR, "#F1F1F1"), (0.1, "#DDDDDD"))


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
    low, high = 0.6 * min(rates), 1.7 * max(rates)
    ends = (low, high)
    for band, shade in _BANDS:
        below = [end * (1 - band) for end in ends]
        above = [end * (1 + band) for end in ends]
        label = f"within {percent(band, 0)} of measured"
        axes.fill_between(ends, below, above, color=shade, lw=0, zorder=0, label=label)
    axes.plot(ends, ends, color=style.GREY, linewidth=0.8, zorder=1)
    for experiment in distinct(rows, "experiment"):
        series = [row for row in rows if row["experiment"] == experiment]
        for origin in ("measured", "paper"):
            _points(axes, [row for row in series if row["measured_origin"] == origin])
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
    is_papers = rows[0]["measured_origin"] == "paper"
    line = style.GREY if is_papers else colour
    fill = "white" if is_papers else colour
    label = f"the paper's {name}" if is_papers else name
    for row in rows:
        x = float(row["measured_img_per_s"])
        interval = [float(row["img_per_s_low"]), float(row["img_per_s_high"])]
        axes.plot([x, x], interval, color=line, linewidth=0.7, zorder=2)
    measured = [float(row["measured_img_per_s"]) for row in rows]
    predicted = [float(row["img_per_s"]) for row in rows]
    axes.plot(
        measured, predicted, linestyle="none", marker=marker, markersize=5.5, label=label,
        markerfacecolor=fill, markeredgecolor=style.INK, markeredgewidth=0.6, zorder=3,
    )  # fmt: skip


def _remarks(rows: Sequence[Row], tables: Tables) -> list[str]:
    remarks = []
    ours = [row for row in rows if row["measured_origin"] == "measured"]
    if ours:
        images = sorted(float(row["n_images"]) for row in ours)
        sizes = " to ".join(dict.fromkeys((digits(images[0]), digits(images[-1]))))
        remarks += [
            join_distinct(ours, "device"),
            join_distinct(ours, "corpus", CORPORA),
            f"n = {len(ours)} cells of {sizes} images, {style.repeats_text(ours)}",
        ]
        summary = tables.get(predict.SUMMARY_CSV, [])
        if summary:
            remarks.append(f"error: {predict.describe_errors(summary[0])}")
    if len(ours) < len(rows):
        remarks.append("hollow: the paper's own numbers (Tesla T4)")
        remarks.append("two on one vertical: with and without overlap")
    cells = tables[predict.CSV]
    n_absent = len(cells) - len(ok_rows(cells))
    if n_absent:
        remarks.append(
            f"{count_noun(n_absent, 'cell')} not predicted or not measured: {predict.CSV}"
        )
    remarks.append("vertical lines: the prediction's interval")
    return remarks
