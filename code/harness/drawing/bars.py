"""Horizontal bars with a line from the least to the most and the number beside them."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from harness.drawing import style
from harness.drawing.format import digits
from harness.drawing.rendering import NothingToDrawError
from harness.table import Row

#: A rate, its slowest and its fastest repeat.
RATE_COLUMNS = ("img_per_s", "img_per_s_min", "img_per_s_max")


def draw_bars(
    axes: Axes,
    rows: Sequence[Row | None],
    columns: tuple[str, str, str],
    after: Callable[[Row], str] | None = None,
    *,
    reason_width: int = 0,
    height: float = 0.62,
    weight: str = "normal",
    colour_of: Callable[[Row], str] = lambda row: style.BAR,
) -> None:
    """A bar to the first column, a line between the others, the number and `after` beside them.

    A row without a measurement shows its status, with a reason cut to `reason_width` characters.
    """
    for position, row in enumerate(rows):
        if row is None:
            continue
        if row["status"] != "ok":
            status = style.status_text(row, reason_width) if reason_width else row["status"]
            style.write_beside_bar(axes, 0, position, status).set(color=style.GREY, fontsize=7)
            continue
        value, low, high = (row[column] for column in columns)
        if value is None or low is None or high is None:
            raise NothingToDrawError(f"row {position + 1} has status ok but lacks one of {columns}")
        axes.barh(position, value, height=height, color=colour_of(row), **style.EDGE)
        # Not an error bar: those are relative to the value, which may lie outside the quantiles.
        if high > low:
            style.draw_range(axes, (low, high), position)
        extra = after(row) if after else ""
        text = f"{digits(value)}{extra}{style.mark(row)}"
        style.write_beside_bar(axes, max(value, high), position, text).set_fontweight(weight)
