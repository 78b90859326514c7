"""Figure 5: what one batch takes in each runtime, the forward pass alone."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import onnx
from wallclock.paper.csvfile import Row, joined, number, ok_rows
from wallclock.paper.figures import style
from wallclock.paper.format import digits
from wallclock.paper.labels import RUNTIMES
from wallclock.paper.rendering import NothingToDrawError, Tables, output

#: The bar of a runtime of ONNX Runtime's; PyTorch's are blue.
_ONNX_BAR = "#E8B54D"
#: Characters of a reason that fit beside the names.
_REASON = 74


@output(
    "fig-05-onnx-vs-pytorch",
    "Latency of one batch in each runtime, the forward pass alone",
    onnx.CSV,
)
def draw(tables: Tables) -> Figure:
    """Mean time a batch by runtime, with a line from p50 to p95; without a time, the reason."""
    rows = tables[onnx.CSV]
    measured = ok_rows(rows)
    figure = style.new_figure(1.05 + 0.3 * len(rows))
    axes = figure.subplots()
    for position, row in enumerate(rows):
        if row["status"] == "ok":
            _bar(axes, position, row)
        else:
            style.not_measured(axes, position, style.why(row, _REASON))
    style.horizontal_bars(axes, [name(row) for row in rows], 0.24)
    axes.set_xlabel(f"milliseconds per batch of {joined(measured, 'batch_size')}")
    axes.set_title("Forward pass alone, by runtime")
    batches = joined(measured, "n_batches")
    remarks = (
        f"{batches} batches" if batches else "",
        "bar: mean, line: p50 to p95",
        style.mark_explained(measured),
    )
    style.place_caption(figure, style.caption(measured, *remarks))
    return figure


def name(row: Row) -> str:
    """Runtime and precision: `PyTorch FP16`."""
    return f"{RUNTIMES[row['runtime']]} {row['dtype'].upper()}"


def _bar(axes: Axes, position: int, row: Row) -> None:
    mean, p50, p95 = (number(row[column]) for column in ("mean_ms", "p50_ms", "p95_ms"))
    if mean is None or p50 is None or p95 is None:
        raise NothingToDrawError(f"{name(row)} has status ok but an empty time")
    colour = _ONNX_BAR if row["runtime"].startswith("onnx") else style.BAR
    axes.barh(position, mean, height=0.62, color=colour, **style.EDGE)
    style.range_line(axes, (p50, p95), position)
    rate = f" · {digits(row['img_per_s'])} img/s" if row["img_per_s"] else ""
    style.beside_bar(axes, max(mean, p95), position, f"{digits(mean)} ms{rate}{style.mark(row)}")
