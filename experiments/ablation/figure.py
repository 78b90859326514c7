"""Figure 13: throughput after each step to the fast loader, and of each step alone."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.ablation import cells as ablation
from experiments.frontier import pairs
from harness.drawing import style
from harness.drawing.bars import RATE_COLUMNS, draw_bars
from harness.drawing.format import factor
from harness.drawing.labels import SETS, Labels
from harness.drawing.rendering import Tables, output
from harness.table import Row, distinct, join_distinct, ok_rows

#: What the steps are called.
_STEPS = Labels(
    {
        ablation.BASELINE: "DataLoader + PIL",
        "libjpeg_turbo": "+ libjpeg-turbo",
        "scaled_decode": "+ scaled decode",
        "torch_resize": "+ torch's resize",
        "uint8": "+ uint8 batches",
        "threads": "+ threads engine",
        "native": "+ native module",
    }
)


@output("fig-13-ablation", "What each step to the fast loader brings", ablation.CSV)
def draw(tables: Tables) -> Figure:
    """A panel per image set: cumulative rungs as bars, top to bottom, steps alone as circles."""
    rows = tables[ablation.CSV]
    measured = ok_rows(rows)
    sets = distinct(measured, "image_set")
    figure = style.new_figure(2.9)
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    for axes, image_set in zip(panels, sets, strict=True):
        _draw_ablation(axes, [row for row in rows if row["image_set"] == image_set])
        axes.set_title(SETS[image_set].capitalize())
    # A rung loads as many images as it can in the time: a range says enough. No network runs.
    counts = [row["n_images"] for row in measured]
    described = [dict(row) | {"n_images": "", "weights": ""} for row in measured]
    style.place_caption(
        figure,
        described,
        f"n = {min(counts):,} to {max(counts):,} images a repeat",
        f"{join_distinct(measured, 'cores')} cores, pages cached",
        "bars: steps added from top to bottom; circles: the step alone on the baseline",
        style.spread_remark(measured, "horizontal lines"),
        style.disturbed_remark(measured, _mode_and_step),
        style.omission_remark(rows, _mode_and_step),
    )
    return figure


def _draw_ablation(axes: Axes, rows: Sequence[Row]) -> None:
    """The rungs of one image set as bars, the steps alone as circles."""
    run = {row["step"] for row in rows}  # an older run lacks later steps
    steps_in_order = [step for step in (ablation.BASELINE, *ablation.STEPS) if step in run]
    rungs = {row["step"]: row for row in rows if row["mode"] == "cumulative"}
    draw_bars(axes, [rungs.get(step) for step in steps_in_order], RATE_COLUMNS, _gain_over_previous)
    for row in ok_rows(rows):
        if row["mode"] == "alone":
            position = steps_in_order.index(row["step"])
            rate = row["img_per_s"]
            axes.plot([rate], [position], "o", ms=5, mfc="white", mec=style.INK, zorder=3)
    style.prepare_bar_axes(axes, [_STEPS[step] for step in steps_in_order], 0.32)
    axes.set_xlabel("images per second")


def _gain_over_previous(row: Row) -> str:
    """The factor; of one whose interval contains 1, that it cannot be told from none."""
    gain = row["speedup_vs_previous"]
    if not gain or row["step"] == ablation.BASELINE:
        return ""
    tie = " (a tie)" if pairs.is_tie(row, "speedup_vs_previous") else ""
    return f"   {factor(gain)}{tie}"


def _mode_and_step(row: Row) -> str:
    return f"{row['mode']} {_STEPS[row['step']]}"
