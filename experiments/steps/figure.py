"""Figure 10: throughput after each step, added one to the other."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.steps import cells as steps
from harness.drawing import style
from harness.drawing.bars import RATE_COLUMNS, draw_bars
from harness.drawing.format import factor
from harness.drawing.labels import DECODERS, SHORT_SETS, Labels
from harness.drawing.rendering import Tables, output
from harness.table import Row, ok_rows

#: What the steps are called.
_STEPS = Labels(
    {
        "baseline": "Baseline",
        "decode_resize": "+ decode, resize",
        "workers": "+ workers",
        "batch": "+ batch",
        "fp16": "+ FP16",
    }
)


@output(
    "fig-10-throughput-summary",
    "Throughput after each cumulative step, measured end to end",
    steps.CSV,
)
def draw(tables: Tables) -> Figure:
    """A bar per step, images per second, with its factor over the baseline.

    A panel per image set and order of the steps; the reverse one begins with the same baseline.
    """
    # A table from before the reverse order has no such column.
    rows = [{"order": steps.PAPER} | row for row in tables[steps.CSV]]
    measured = ok_rows(rows)
    orders = dict.fromkeys((row["image_set"], row["order"]) for row in rows)
    ladders = [_ladder(rows, image_set, order) for image_set, order in orders]
    lengths = [len(ladder) for ladder in ladders]
    figure = style.new_figure(0.55 + sum(0.4 + 0.42 * length for length in lengths))
    panels = figure.subplots(len(ladders), 1, squeeze=False, height_ratios=lengths)[:, 0]
    right_ends: dict[str, float] = {}
    for axes, ladder in zip(panels, ladders, strict=True):
        _draw_ladder(axes, ladder)
        image_set = ladder[0]["image_set"]
        right_ends[image_set] = max(right_ends.get(image_set, 0.0), axes.get_xlim()[1])
    for axes, ladder in zip(panels, ladders, strict=True):  # one scale for both orders
        axes.set_xlim(right=right_ends[ladder[0]["image_set"]])
    panels[-1].set_xlabel("images per second, measured end to end")
    style.place_caption(
        figure,
        measured,
        style.spread_remark(measured, "line"),
        _fidelity(rows),
        style.mark_remark(measured),
        style.omission_remark(rows, _step_label),
    )
    return figure


def _draw_ladder(axes: Axes, ladder: Sequence[Row]) -> None:
    """A bar per step, with its factor over the baseline where that was measured."""
    baseline = ladder[0]["img_per_s"] if ladder[0]["step"] == "baseline" else None

    def gain(row: Row) -> str:
        if not baseline or row["step"] == "baseline":
            return ""
        return f"  {factor(row['img_per_s'] / baseline)}"

    draw_bars(axes, ladder, RATE_COLUMNS, gain, reason_width=80, weight="bold")
    style.prepare_bar_axes(axes, [_step_name(row) for row in ladder], 0.26)
    order = "" if ladder[-1]["order"] == steps.PAPER else ", in reverse order"
    images = SHORT_SETS[ladder[0]["image_set"]]
    axes.set_title(f"Each step added to those above it{order}: {images}")


def _ladder(rows: Sequence[Row], image_set: str, order: str) -> list[Row]:
    """The steps of one image set in one order, from the baseline that both orders share."""
    set_rows = [row for row in rows if row["image_set"] == image_set]
    baseline = [row for row in set_rows if row["step"] == "baseline"]
    later = [row for row in set_rows if row["order"] == order and row not in baseline]
    return baseline + later


def _step_label(row: Row) -> str:
    return _STEPS[row["step"]]


def _step_name(row: Row) -> str:
    decoder, resizer = DECODERS[row["decoder"]], DECODERS[row["resizer"]]
    libraries = decoder if decoder == resizer else f"{decoder}/{resizer}"
    settings = f"{row['workers']} workers, batch {row['batch_size']}, {row['dtype'].upper()}"
    return f"{_STEPS[row['step']]}\n{libraries}, {settings}"


def _fidelity(rows: Sequence[Row]) -> str:
    """How near the last step's output is to the reference: part of a gain may be less work."""
    for row in reversed(ok_rows(rows)):
        if row["psnr_db"]:
            vectors = f", vectors' cosine {row['cosine']:.4f}" if row["cosine"] else ""
            psnr = f"PSNR {row['psnr_db']:.0f} dB against PIL"
            return f"{_STEPS[row['step']]}: {psnr}{vectors}"
    return ""
