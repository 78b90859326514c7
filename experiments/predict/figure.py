"""Figure 12: the error of each predicted throughput, experiment by experiment."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.predict import cells as predict
from harness.drawing import style
from harness.drawing.format import count_noun, digits, percent, signed_percent
from harness.drawing.labels import CORPORA
from harness.drawing.rendering import NothingToDrawError, Tables, output
from harness.table import Row, join_distinct, ok_rows
from wallclock.predict.intervals import RATE_ERROR

#: Label by experiment.
_LABELS: Mapping[str, str] = {
    "predict": "proving set",
    "t4": "baseline",
    "opt": "optimized",
    "fast": "recipe=fast",
    "steps": "steps",
    "workers": "worker sweep",
    "batch": "batch sweep",
}
_OTHER = "other engines"
_FILL = "#00568C"
#: Reach of the two bands from zero, relative, and their fills.
_BANDS = ((RATE_ERROR, "#F1F1F1"), (0.1, "#DDDDDD"))
#: Share of a strip's height over which its points are spread.
_SPREAD = 0.6


@output(
    "fig-12-predicted-vs-measured",
    "Error of the throughput predicted from the costs of the stages, by experiment",
    predict.CSV,
    optional=(predict.ACCURACY_CSV,),
)
def draw(tables: Tables) -> Figure:
    """A strip per experiment, a point per cell: the predicted rate over the measured, less 1."""
    measured = ok_rows(tables[predict.CSV])
    rows = [row for row in measured if row["img_per_s"] and row["measured_img_per_s"]]
    if not rows:
        raise NothingToDrawError(f"no row in {predict.CSV} was both predicted and measured")
    strips: dict[str, list[Row]] = {}
    for row in rows:
        strips.setdefault(_LABELS.get(row["experiment"], _OTHER), []).append(row)
    figure = style.new_figure(1.5 + 0.27 * len(strips))
    axes = figure.subplots()
    for band, shade in _BANDS:
        axes.axvspan(-100 * band, 100 * band, color=shade, lw=0, zorder=0)
    axes.axvline(0, color=style.GREY, linewidth=0.8, zorder=1)
    for y, members in enumerate(strips.values()):
        _draw_strip(axes, y, members)
    names = [f"{name}  (n = {len(members)})" for name, members in strips.items()]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:+,g}" if x else "0")
    axes.set_xlabel("predicted over measured images per second, less 1, %")
    bands = [
        Patch(facecolor=shade, label=f"within {percent(band, 0)} of measured")
        for band, shade in reversed(_BANDS)
    ]
    figure.legend(handles=bands, loc="outside upper left", ncols=2)
    style.place_note(figure, *_remarks(rows, tables))
    return figure


def _draw_strip(axes: Axes, y: int, rows: Sequence[Row]) -> None:
    """A point per cell with its interval, in the order of the errors."""
    errors = sorted(rows, key=lambda row: _error(row, "img_per_s"))
    for place, row in enumerate(errors):
        height = y + _SPREAD * ((place + 0.5) / len(errors) - 0.5)
        interval = [_error(row, "img_per_s_low"), _error(row, "img_per_s_high")]
        axes.plot(interval, [height, height], color=_FILL, linewidth=0.6, zorder=2)
        axes.plot(
            [_error(row, "img_per_s")], [height], linestyle="none", marker="o", markersize=3.8,
            markerfacecolor=_FILL, markeredgecolor=style.INK, markeredgewidth=0.5, zorder=3,
        )  # fmt: skip


def _error(row: Row, column: str) -> float:
    """What `column` is away from the measured rate, %."""
    relative: float = row[column] / row["measured_img_per_s"] - 1
    return 100 * relative


def _remarks(rows: Sequence[Row], tables: Tables) -> list[str]:
    images = sorted(row["n_images"] for row in rows)
    sizes = " to ".join(dict.fromkeys((digits(images[0]), digits(images[-1]))))
    remarks = [
        join_distinct(rows, "device"),
        join_distinct(rows, "corpus", CORPORA),
        f"n = {len(rows)} cells of {sizes} images, {style.repeats_text(rows)}",
    ]
    if accuracy := tables.get(predict.ACCURACY_CSV, []):
        remarks.append(f"error: {_errors(accuracy[0])}")
    cells = tables[predict.CSV]
    n_absent = len(cells) - len(ok_rows(cells))
    if n_absent:
        remarks.append(
            f"{count_noun(n_absent, 'cell')} not predicted or not measured: {predict.CSV}"
        )
    remarks.append("lines: the prediction's interval")
    return remarks


def _errors(row: Row) -> str:
    """The errors of rates in a row of `prediction-accuracy.csv`."""
    errors = f"median {percent(row['rate_error_median'])}, worst {percent(row['rate_error_worst'])}"
    return f"{errors}, bias {signed_percent(row['rate_bias'])}, n = {row['n_rates']}"
