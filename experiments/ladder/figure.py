"""Figure 19: requests per second by rung beside the source's; latency against the offered rate."""

from collections.abc import Sequence
from itertools import cycle
from operator import itemgetter

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from experiments.ladder import cells as ladder
from harness.drawing import style
from harness.drawing.format import digits
from harness.drawing.labels import SHORT_SETS
from harness.drawing.rendering import NothingToDrawError, Tables, output
from harness.table import Row, ok_rows

_NAMES = {
    1: "1  one thread",
    2: "2  threads for I/O",
    3: "3  preprocessing in parallel",
    4: "4  batches of 8",
    5: "5  wallclock serve",
    6: "    a consumer of sixty lines",
    7: "    LitServe behind a consumer",
}
#: Rung → colour and marker of its latencies; of rung 5 a marker for each duty, in their order.
_SERIES = {2: ("#AAAFB6", "D"), 3: ("#E69F00", "s"), 4: ("#00568C", "^"), 5: ("#D55E00", "oPX")}
#: Inches: of a bar, and of all around the bars.
_BAR_INCHES, _AROUND_INCHES = 0.23, 1.5


@output(
    "fig-19-ladder",
    "A queue-driven service: requests per second by rung, latency against rate",
    ladder.CSV,
    optional=(ladder.LATENCY_CSV,),
)
def draw(tables: Tables) -> Figure:
    """Left the rungs on the mock, below them with the model; right Poisson arrivals on the mock."""
    measured = ok_rows(tables[ladder.CSV])
    rows = [row for row in measured if row["setup"] == ladder.MOCK]
    if not rows:
        raise NothingToDrawError(f"no rung on the mock in {ladder.CSV}")
    of_model = [row for row in measured if row["setup"] == ladder.MODEL]
    arrivals = ok_rows(tables.get(ladder.LATENCY_CSV, []))
    panels = [rows, of_model] if of_model else [rows]
    heights = [len(panel) + _AROUND_INCHES / _BAR_INCHES / 2 for panel in panels]
    figure = style.new_figure(_BAR_INCHES * sum(heights) + _AROUND_INCHES / 2)
    grid = figure.add_gridspec(len(panels), 2, height_ratios=heights)
    upper, right = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[:, 1])
    _rungs(upper, rows)
    upper.set_title("Mock device and network")
    if of_model:
        lower = figure.add_subplot(grid[1, 0])
        _rungs(lower, of_model)
        lower.set_title(_model_title(of_model))
    _latencies(right, arrivals)
    _legend(figure, upper, right)
    style.place_caption(figure, [*rows, *of_model], *_remarks(rows, arrivals, tables))
    return figure


def _legend(figure: Figure, bars: Axes, lines: Axes) -> None:
    """Above all panels: inside them it would lie on texts or points."""
    bars.plot([], [], "D", ms=5, mfc="white", mec=style.INK, label="GumGum, T4, 8 vCPU")
    bars.plot([], [], color=style.INK, lw=1.2, ls=":", label="predicted from the parts")
    handles, labels = bars.get_legend_handles_labels()
    more, named = lines.get_legend_handles_labels()
    figure.legend(
        [*handles, *more], [*labels, *named], loc="outside upper left", ncols=4, fontsize=7
    )


def _model_title(rows: Sequence[Row]) -> str:
    first = rows[0]
    return f"{first['model']}, {first['dtype']}, {SHORT_SETS[first['image_set']]}"


def _remarks(rows: Sequence[Row], arrivals: Sequence[Row], tables: Tables) -> list[str]:
    remarks = [
        "mock: device, preprocessing and network sleep as long as the source's rungs say",
        "GPU: its share of rung 1's time, which the source leaves open",
    ]
    if arrivals:
        bound = f"{arrivals[0]['bound']:g}"
        remarks.append(
            f"ring: the highest rate with a p99 of at most {bound} times the lowest rate's"
        )
    all_rows = [row for name in tables for row in tables[name]]
    remarks.append(style.omission_remark(all_rows, itemgetter("what")))
    remarks.append(style.spread_remark(rows, "lines"))
    return remarks


def _rungs(axes: Axes, rows: Sequence[Row]) -> None:
    """A bar for each rung and duty; the source's number a diamond, ours predicted a line."""
    for y, row in enumerate(rows):
        rate = row["requests_per_s"]
        axes.barh(y, rate, height=0.6, color=style.BAR, **style.EDGE)
        slowest, fastest = row["requests_per_s_min"], row["requests_per_s_max"]
        style.draw_range(axes, (slowest, fastest), y)
        expected = row["predicted_per_s"]
        if expected:
            axes.plot([expected, expected], [y - 0.38, y + 0.38], color=style.INK, lw=1.2, ls=":")
        # A CPU is nothing to compare a T4 with.
        source = row["source_per_s"] if row["device_kind"] != "cpu" else None
        if source:
            axes.plot(source, y, "D", ms=5, mfc="white", mec=style.INK)
        right_end = max(fastest, expected or 0, source or 0)
        style.write_beside_bar(axes, right_end, y, _bar_text(row))
    style.prepare_bar_axes(axes, [_name(row) for row in rows], margin=0.45)
    axes.set_xlabel("requests per second, full queue")


def _bar_text(row: Row) -> str:
    """Rate, and gain over the rung below."""
    text = digits(row["requests_per_s"])
    if gain := row["speedup_vs_previous"]:
        text += f"  ({gain:.3g}×)"
    return text


def _name(row: Row) -> str:
    return _NAMES[row["rung"]] + (f", {_duty(row)}" if row["duty"] else "")


def _duty(row: Row) -> str:
    return f"GPU {100 * row['duty']:.3g} %"


def _latencies(axes: Axes, arrivals: Sequence[Row]) -> None:
    """p99 of each rung and duty; a ring at the knee."""
    axes.set(xlabel="requests per second, Poisson arrivals", title="Queued to called back")
    axes.set_ylabel("seconds, p99")
    for rung, (colour, markers) in _SERIES.items():
        of_rung = [row for row in arrivals if row["rung"] == rung]
        duties = dict.fromkeys(row["duty"] for row in of_rung)
        for marker, duty in zip(cycle(markers), duties, strict=False):
            series = [row for row in of_rung if row["duty"] == duty]
            label = f"rung {rung}" + (f", {_duty(series[0])}" if duty else "")
            _series(axes, series, colour, marker, label)
    if arrivals:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(left=0)
    axes.grid(color="#E4E4E4", linewidth=0.5)


def _series(axes: Axes, series: Sequence[Row], colour: str, marker: str, label: str) -> None:
    """One rung's latencies at its rates."""
    offered = [row["offered_per_s"] for row in series]
    p99 = [row["latency_p99_ms"] / 1e3 for row in series]
    axes.plot(offered, p99, "-", color=colour, lw=1.1, ms=4, marker=marker, label=label)
    for row, rate, seconds in zip(series, offered, p99, strict=True):
        if row["knee"]:
            axes.plot(rate, seconds, "o", ms=10, mfc="none", mec=style.INK)
