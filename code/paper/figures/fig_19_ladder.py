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
    remarks = ["device, preprocessing and network: slept, by the source's rungs"]
    duties = [
        f"{digits(row['requests_per_s'])} with its GPU {100 * float(row['duty']):.3g} % busy"
        for row in rows
        if row["duty"]
    ]
    remarks += [f"rung 5: {', '.join(duties)} at rung 1"] if duties else []
    if arrivals:
        bound = f"{float(arrivals[0]['bound']):g}"
        remarks += [f"ring: the highest rate with a p99 of at most {bound} times the lowest rate's"]
    missing = style.left_out([row for name in tables for row in tables[name]], itemgetter("what"))
    style.place_caption(figure, rows, *remarks, missing, style.spread_remark(rows, "lines"))
    return figure


def _rungs(axes: Axes, rows: Sequence[Row]) -> None:
    """A bar for each rung; the source's number a diamond, ours predicted a line."""
    shown = list({row["rung"]: row for row in reversed(rows)}.values())[::-1]
    for y, row in enumerate(shown):
        rate = float(row["requests_per_s"])
        axes.barh(y, rate, height=0.6, color=style.BAR, **style.EDGE)
        style.range_line(
            axes, (float(row["requests_per_s_min"]), float(row["requests_per_s_max"])), y
        )
        expected = float(row["predicted_per_s"])
        axes.plot([expected] * 2, [y - 0.38, y + 0.38], color=style.INK, lw=1.2, ls=":")
        if source := number(row["source_per_s"]):
            axes.plot(source, y, "D", ms=5, mfc="white", mec=style.INK)
        gain = number(row["speedup_vs_previous"])
        text = digits(rate) + (f"  ({gain:.3g}×)" if gain else "")
        style.beside_bar(axes, max(rate, expected), y, text)
    axes.plot([], [], "D", ms=5, mfc="white", mec=style.INK, label="GumGum, T4, 8 vCPU")
    axes.plot([], [], color=style.INK, lw=1.2, ls=":", label="predicted from the parts")
    style.horizontal_bars(axes, [_NAMES[row["rung"]] for row in shown], margin=0.25)
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
                at = float(row["offered_per_s"]), float(row["latency_p99_ms"]) / 1e3
                axes.plot(*at, "o", ms=10, mfc="none", mec=style.INK)
    if arrivals:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.legend(loc="best", fontsize=7)
    axes.set_xlim(left=0)
    axes.grid(color="#E4E4E4", linewidth=0.5)
