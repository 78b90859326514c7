"""Figure 5: what one batch takes in each runtime, the forward pass alone."""

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
    mark,
    mark_explained,
    new_figure,
    place_caption,
    why,
)
from wallclock.paper.figures.sweep import rate_label
from wallclock.paper.labels import RUNTIMES
from wallclock.paper.rendering import NothingToDrawError, Tables

STEM = "fig-05-onnx-vs-pytorch"
TITLE = "Latency of one batch in each runtime, the forward pass alone"
SOURCES: tuple[str, ...] = ("onnx-vs-pytorch.csv",)
OPTIONAL: tuple[str, ...] = ()

_BAR_HEIGHT = 0.62
#: A runtime of PyTorch's is blue, one of ONNX Runtime's is this.
_ONNX_BAR = "#E8B54D"
#: Characters of a reason that fit beside the names.
_REASON = 74


def draw(tables: Tables) -> Figure:
    """One bar a runtime, mean time a batch, with a line from p50 to p95; those without a time say why.

    Raises:
        NothingToDrawError: a row with status ok has no times.
    """
    rows = tables[SOURCES[0]]
    measured = ok_rows(rows)
    figure = new_figure(1.05 + 0.3 * len(rows))
    axes = figure.subplots()
    for position, row in enumerate(rows):
        if row["status"] == "ok":
            _bar(axes, position, row)
        else:
            beside_bar(axes, 0, position, why(row, _REASON)).set(color=GREY, fontsize=7)
    axes.set_yticks(range(len(rows)), [name(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.margins(x=0.24)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_xlabel(f"milliseconds per batch of {' / '.join(distinct(measured, 'batch_size'))}")
    axes.set_title("Forward pass alone, by runtime")
    bare_y_axis(axes)
    batches = " / ".join(distinct(measured, "n_batches"))
    remarks = (
        f"{batches} batches" if batches else "",
        "bar: mean, line: p50 to p95",
        mark_explained(measured),
    )
    place_caption(figure, caption(measured, *remarks))
    return figure


def name(row: Row) -> str:
    """Runtime and precision, as a reader knows them."""
    return f"{RUNTIMES.get(row['runtime'], row['runtime'])} {row['dtype'].upper()}"


def _bar(axes: Axes, position: int, row: Row) -> None:
    mean, p50, p95 = (number(row[column]) for column in ("mean_ms", "p50_ms", "p95_ms"))
    if mean is None or p50 is None or p95 is None:
        raise NothingToDrawError(f"{name(row)} has status ok but an empty time")
    colour = _ONNX_BAR if row["runtime"].startswith("onnx") else BAR
    axes.barh(position, mean, height=_BAR_HEIGHT, color=colour, **EDGE)
    axes.plot([p50, p95], [position, position], color=INK, linewidth=1, marker="|", markersize=6)
    rate = number(row["img_per_s"])
    words = f"{mean:,.0f} ms" if mean >= 99.95 else f"{mean:.3g} ms"
    words += f" · {rate_label(rate)} img/s" if rate is not None else ""
    beside_bar(axes, max(mean, p95), position, f"{words}{mark(row)}")
