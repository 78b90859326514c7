"""Figure 10: throughput after each cumulative step from the baseline to all wins, end to end."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import steps
from wallclock.paper.csvfile import Row, number, ok_rows
from wallclock.paper.figures import style
from wallclock.paper.format import digits, factor
from wallclock.paper.labels import DECODERS, STEPS
from wallclock.paper.rendering import NothingToDrawError, Tables, output


@output(
    "fig-10-throughput-summary",
    "Throughput after each cumulative step, measured end to end",
    steps.CSV,
)
def draw(tables: Tables) -> Figure:
    """One bar a step, images a second, with its factor over the baseline."""
    rows = tables[steps.CSV]
    measured = [row for row in ok_rows(rows) if number(row["img_per_s"])]
    if not measured:
        raise NothingToDrawError(f"no row in {steps.CSV} has a rate")
    figure = style.new_figure(0.95 + 0.42 * len(rows))
    axes = figure.subplots()
    base = next((number(row["img_per_s"]) for row in measured if row["step"] == "baseline"), None)
    for position, row in enumerate(rows):
        if row in measured:
            _bar(axes, position, row, base)
        else:
            style.not_measured(axes, position, style.why(row, 80))
    style.horizontal_bars(axes, [_label(row) for row in rows], 0.22)
    axes.set_xlabel("images per second, measured end to end")
    axes.set_title(f"Throughput, each step added to those above it, {style.sets_of(measured)}")
    remarks = (
        style.spread_remark(measured, "line"),
        _fidelity(rows),
        style.mark_explained(measured),
        style.left_out(rows, lambda row: STEPS[row["step"]]),
    )
    style.place_caption(figure, style.caption(measured, *remarks))
    return figure


def _bar(axes: Axes, position: int, row: Row, base: float | None) -> None:
    rate = number(row["img_per_s"]) or 0.0
    low, high = number(row["img_per_s_min"]) or rate, number(row["img_per_s_max"]) or rate
    axes.barh(position, rate, height=0.62, color=style.BAR, **style.EDGE)
    if high > low:
        style.range_line(axes, (low, high), position)
    gain = f"  {factor(rate / base)}" if base and row["step"] != "baseline" else ""
    text = f"{digits(rate)}{gain}{style.mark(row)}"
    style.beside_bar(axes, max(rate, high), position, text).set_fontweight("bold")


def _label(row: Row) -> str:
    decoder, resizer = DECODERS[row["decoder"]], DECODERS[row["resizer"]]
    libraries = decoder if decoder == resizer else f"{decoder}/{resizer}"
    settings = f"{row['workers']} workers, batch {row['batch_size']}, {row['dtype'].upper()}"
    return f"{STEPS[row['step']]}\n{libraries}, {settings}"


def _fidelity(rows: Sequence[Row]) -> str:
    """How near the last step's output is to the reference: part of a gain may be less work."""
    for row in reversed(ok_rows(rows)):
        psnr, cosine = number(row["psnr_db"]), number(row["cosine"])
        if psnr is not None:
            vectors = f", vectors' cosine {cosine:.4f}" if cosine is not None else ""
            return f"{STEPS[row['step']]}: PSNR {psnr:.0f} dB against PIL{vectors}"
    return ""
