"""Figure 19: requests a second by rung beside the source's; latency against the offered rate."""

from collections.abc import Sequence
from operator import itemgetter

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from experiments import ladder
from paper.csvfile import Row, number, ok_rows
from paper.figures import style
from paper.format import digits
from paper.rendering import NothingToDrawError, Tables, output

_NAMES = {
    "1": "1  one thread",
    "2": "2  threads for I/O",
    "3": "3  preprocessing in parallel",
    "4": "4  batches of 8",
    "5": "5  wallclock serve",
}
#: Rung → colour and marker of its latencies.
_SERIES = {
    "2": ("#AAAFB6", "D"),
    "3": ("#E69F00", "s"),
    "4": ("#00568C", "^"),
    "5": ("#D55E00", "o"),
}


@output(
    "fig-19-ladder",
    "A queue-driven service: requests a second by rung, latency against rate",
    ladder.CSV,
    optional=(ladder.LATENCY_CSV,),
)
def draw(tables: Tables) -> Figure:
    """Left the rungs on the mock device and network, right Poisson arrivals at the same."""
    rows = [row for row in ok_rows(tables[ladder.CSV]) if row["setup"] == ladder.MOCK]
    if not rows:
        raise NothingToDrawError(f"no rung on the mock in {ladder.CSV}")
    arrivals = ok_rows(tables.get(ladder.LATENCY_CSV, []))
    figure = style.new_figure(3.3)
    left, right = figure.subplots(1, 2)
    _rungs(left, rows)
    _latencies(right, arrivals)
    style.place_caption(figure, rows, *_remarks(rows, arrivals, tables))
    return figure


def _remarks(rows: Sequence[Row], arrivals: Sequence[Row], tables: Tables) -> list[str]:
    remarks = ["device, preprocessing and network: slept, by the source's rungs"]
    duties = [
        f"{digits(row['requests_per_s'])} with its GPU {100 * float(row['duty']):.3g} % busy"
        for row in rows
        if row["duty"]
    ]
    if duties:
        remarks.append(f"rung 5: {', '.join(duties)} at rung 1")
    if arrivals:
        bound = f"{float(arrivals[0]['bound']):g}"
        remarks.append(
            f"ring: the highest rate with a p99 of at most {bound} times the lowest rate's"
        )
    all_rows = [row for name in tables for row in tables[name]]
    remarks.append(style.omission_remark(all_rows, itemgetter("what")))
    remarks.append(style.spread_remark(rows, "lines"))
    return remarks


def _rungs(axes: Axes, rows: Sequence[Row]) -> None:
    """A bar for each rung; the source's number a diamond, ours predicted a line."""
    by_rung: dict[str, Row] = {}
    for row in rows:
        by_rung.setdefault(row["rung"], row)
    for y, row in enumerate(by_rung.values()):
        rate = float(row["requests_per_s"])
        axes.barh(y, rate, height=0.6, color=style.BAR, **style.EDGE)
        style.draw_range(
            axes, (float(row["requests_per_s_min"]), float(row["requests_per_s_max"])), y
        )
        expected = float(row["predicted_per_s"])
        axes.plot([expected, expected], [y - 0.38, y + 0.38], color=style.INK, lw=1.2, ls=":")
        source = number(row["source_per_s"])
        if source:
            axes.plot(source, y, "D", ms=5, mfc="white", mec=style.INK)
        text = digits(rate)
        gain = number(row["speedup_vs_previous"])
        if gain:
            text += f"  ({gain:.3g}×)"
        style.write_beside_bar(axes, max(rate, expected), y, text)
    axes.plot([], [], "D", ms=5, mfc="white", mec=style.INK, label="GumGum, T4, 8 vCPU")
    axes.plot([], [], color=style.INK, lw=1.2, ls=":", label="predicted from the parts")
    style.prepare_bar_axes(axes, [_NAMES[rung] for rung in by_rung], margin=0.25)
    axes.legend(loc="upper right", fontsize=7)
    axes.set(xlabel="requests per second, full queue", title="Mock device and network")


def _latencies(axes: Axes, arrivals: Sequence[Row]) -> None:
    """p50 dashed and p99 solid of each rung; a ring at the knee."""
    axes.set(xlabel="requests per second, Poisson arrivals", title="Queued to called back")
    axes.set_ylabel("seconds, p99 (dashed: p50)")
    for rung, (colour, marker) in _SERIES.items():
        series = [row for row in arrivals if row["rung"] == rung]
        offered = [float(row["offered_per_s"]) for row in series]
        for column, line in (("latency_p99_ms", "-"), ("latency_p50_ms", "--")):
            seconds = [float(row[column]) / 1e3 for row in series]
            label = f"rung {rung}" if series and line == "-" else None
            axes.plot(
                offered, seconds, line, color=colour, lw=1.1, ms=4, label=label,
                marker=marker if line == "-" else "",
            )  # fmt: skip
        for row in series:
            if row["knee"] == "yes":
                rate = float(row["offered_per_s"])
                p99 = float(row["latency_p99_ms"]) / 1e3
                axes.plot(rate, p99, "o", ms=10, mfc="none", mec=style.INK)
    if arrivals:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.legend(loc="best", fontsize=7)
    axes.set_xlim(left=0)
    axes.grid(color="#E4E4E4", linewidth=0.5)
