"""Figure 10: throughput after each cumulative step from the baseline to all wins, measured end to end."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wallclock.paper.csvfile import number, ok_rows
from wallclock.paper.figures.style import (
    BAR,
    EDGE,
    GREY,
    INK,
    Row,
    bare_y_axis,
    beside_bar,
    caption,
    distinct,
    left_out,
    mark,
    mark_explained,
    new_figure,
    place_caption,
    why,
)
from wallclock.paper.figures.sweep import rate_label
from wallclock.paper.labels import DECODERS, SETS, STEPS
from wallclock.paper.rendering import NothingToDrawError, Tables

STEM = "fig-10-throughput-summary"
TITLE = "Throughput after each cumulative step, measured end to end"
SOURCES: tuple[str, ...] = ("throughput-steps.csv",)
OPTIONAL: tuple[str, ...] = ()

_BAR_HEIGHT = 0.62


def draw(tables: Tables) -> Figure:
    """One bar a step, images a second, with its factor over the baseline.

    Raises:
        NothingToDrawError: no step has a rate.
    """
    rows = tables[SOURCES[0]]
    measured = [row for row in ok_rows(rows) if number(row["img_per_s"])]
    if not measured:
        raise NothingToDrawError(f"no row in {SOURCES[0]} has a rate")
    figure = new_figure(0.95 + 0.42 * len(rows))
    axes = figure.subplots()
    base = next((number(row["img_per_s"]) for row in measured if row["step"] == "baseline"), None)
    for position, row in enumerate(rows):
        if row in measured:
            _bar(axes, position, row, base)
        else:
            beside_bar(axes, 0, position, why(row, 80)).set(color=GREY, fontsize=7)
    axes.set_yticks(range(len(rows)), [_label(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.margins(x=0.22)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_xlabel("images per second, measured end to end")
    sets = " / ".join(SETS.get(name, name) for name in distinct(measured, "image_set"))
    axes.set_title(f"Throughput, each step added to those above it, {sets}")
    bare_y_axis(axes)
    spread = (
        "line: slowest to fastest repeat" if any(row["repeats"] != "1" for row in measured) else ""
    )
    remarks = (
        spread,
        _fidelity(rows),
        mark_explained(measured),
        left_out(rows, lambda row: _name(row["step"])),
    )
    place_caption(figure, caption(measured, *remarks))
    return figure


def _bar(axes: Axes, position: int, row: Row, base: float | None) -> None:
    rate = number(row["img_per_s"]) or 0.0
    low, high = number(row["img_per_s_min"]) or rate, number(row["img_per_s_max"]) or rate
    axes.barh(position, rate, height=_BAR_HEIGHT, color=BAR, **EDGE)
    if high > low:
        axes.plot(
            [low, high], [position, position], color=INK, linewidth=1, marker="|", markersize=6
        )
    factor = f"  × {rate / base:.2f}" if base and row["step"] != "baseline" else ""
    beside_bar(
        axes, max(rate, high), position, f"{rate_label(rate)}{factor}{mark(row)}"
    ).set_fontweight("bold")


def _label(row: Row) -> str:
    decoder, resizer = (DECODERS.get(row[column], row[column]) for column in ("decoder", "resizer"))
    tools = decoder if decoder == resizer else f"{decoder}/{resizer}"
    settings = (
        f"{tools}, {row['workers']} workers, batch {row['batch_size']}, {row['dtype'].upper()}"
    )
    return f"{_name(row['step'])}\n{settings}"


def _name(step: str) -> str:
    return STEPS.get(step, f"+ {step}")


def _fidelity(rows: list[dict[str, str]]) -> str:
    """How near the last step's output is to the reference's: part of a gain may be work left out."""
    for row in reversed(ok_rows(rows)):
        psnr, cosine = number(row["psnr_db"]), number(row["cosine"])
        if psnr is not None:
            likeness = f", vectors' cosine {cosine:.4f}" if cosine is not None else ""
            return f"{_name(row['step'])}: PSNR {psnr:.0f} dB against PIL{likeness}"
    return ""
