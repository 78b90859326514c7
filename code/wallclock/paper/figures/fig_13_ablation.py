"""Figure 13: images a second of the loader, one step after the other, and each step alone."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import ablation
from wallclock.paper.csvfile import Row, joined, number, ok_rows
from wallclock.paper.figures import style
from wallclock.paper.labels import ABLATION, SETS
from wallclock.paper.rendering import NothingToDrawError, Tables, output


@output("fig-13-ablation", "What each step to the fast loader brings", ablation.CSV)
def draw(tables: Tables) -> Figure:
    """A panel an image set: cumulative rungs as bars from top to bottom, steps alone as circles."""
    rows = tables[ablation.CSV]
    measured = [row for row in ok_rows(rows) if number(row["img_per_s"])]
    panels = list(dict.fromkeys(row["image_set"] for row in measured))
    if not panels:
        raise NothingToDrawError(f"no row in {ablation.CSV} has a rate")
    figure = style.new_figure(2.9)
    for axes, image_set in zip(
        figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True
    ):
        _draw_panel(axes, [row for row in measured if row["image_set"] == image_set])
        axes.set_title(SETS[image_set].capitalize())
    remarks = (
        f"{joined(measured, 'cores')} cores, pages cached; n: images loaded in the median repeat",
        "bars: steps added from top to bottom; circles: the step alone on the baseline",
        style.spread_remark(measured, "horizontal lines"),
        style.left_out([row for row in rows if row["status"] != "ok"], lambda row: row["step"]),
    )
    described = [{**row, "n_images": "", "weights": ""} for row in measured]
    style.place_caption(figure, described, *remarks)
    return figure


def _draw_panel(axes: Axes, rows: Sequence[Row]) -> None:
    steps = [ablation.BASELINE, *ablation.STEPS]
    for row in rows:
        y, rate = steps.index(row["step"]), number(row["img_per_s"]) or 0.0
        low, high = number(row["img_per_s_min"]) or rate, number(row["img_per_s_max"]) or rate
        if row["mode"] == "alone":
            axes.plot([rate], [y], "o", ms=5, mfc="white", mec=style.INK, zorder=3)
            continue
        axes.barh(y, rate, height=0.62, color=style.BAR, **style.EDGE)
        if low < high:
            style.range_line(axes, (low, high), y)
        gain = number(row["speedup_vs_previous"])
        text = f"{rate:,.0f}" if not y or gain is None else f"{rate:,.0f}   {gain:.2f}×"
        style.beside_bar(axes, max(rate, high), y, text)
    style.horizontal_bars(axes, [ABLATION[step] for step in steps], 0.32)
    axes.set_xlabel("images per second")
