"""Figure 7: the nine stages as a flow chart, with each one's share of the wall time."""

from html import escape
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from experiments.serial import cells as serial
from harness.drawing import style
from harness.drawing.format import percent
from harness.drawing.labels import SHORT_SETS
from harness.drawing.rendering import NothingToDrawError, Tables, TextVersion, output
from harness.table import Row, ok_rows
from wallclock.clock import DEVICE_STAGES, LOADING_STAGES, STAGES

#: Where the stages run.
_GROUPS = {"loader, on the CPU": LOADING_STAGES, "device": DEVICE_STAGES, "output": STAGES[-1:]}
_SHADES = LinearSegmentedColormap.from_list("share", ["#FFFFFF", "#F6C9A8", "#D55E00", "#7A2E00"])
#: Of a stage's place, which is 1 wide: the box with its gap, the box's height, the gap of an arrow.
_WIDTH = 0.86
_HEIGHT = 0.62
_GAP = 0.14
#: From one row of boxes to the next.
_ROW_PITCH = 0.86

#: Shares of the stages in a pass with PIL, by the name of the image set.
Shares = dict[str, dict[str, float]]


def mermaid(tables: Tables) -> str:
    """The same chart as Mermaid source. Raises NothingToDrawError."""
    sets, _ = _pil_shares(tables)
    lines = [
        "%% made by python -m paper figures; shares of wall time, PIL recipe, serial",
        "flowchart LR",
    ]
    for index, (group, stages) in enumerate(_GROUPS.items()):
        lines.append(f'  subgraph group{index}["{group}"]')
        for stage in stages:
            shares = [f"<br/>{name} {escape(percent(sets[name][stage]))}" for name in sets]
            lines.append(f'    {stage}["<b>{stage}</b>{"".join(shares)}"]')
        lines.append("  end")
    lines.append("  " + " --> ".join(STAGES))
    for stage in STAGES:
        fill = _fill(max(set_shares[stage] for set_shares in sets.values()))
        ink = "#FFFFFF" if style.is_dark(fill) else style.INK
        lines.append(f"  style {stage} fill:{fill},stroke:{style.INK},color:{ink}")
    return "\n".join(lines) + "\n"


@output(
    "fig-07-pipeline-mermaid",
    "The nine stages, and each one's share of the wall time",
    optional=tuple(serial.CSVS.values()),
    text=TextVersion(".mmd", mermaid),
)
def draw(tables: Tables) -> Figure:
    """A row of boxes per image set, filled by share; the stages ran sequentially."""
    sets, rows = _pil_shares(tables)
    figure = style.new_figure(1.15 + 0.62 * len(sets))
    axes = figure.subplots()
    axes.set_axis_off()
    for position, (name, shares) in enumerate(sets.items()):
        y = -position * _ROW_PITCH
        label = name.replace(" images", "\nimages")
        axes.text(-0.62, y, label, ha="right", va="center", fontsize=8, fontweight="bold")
        _flow(axes, y, shares)
    for index, stage in enumerate(STAGES):
        axes.text(index - _GAP / 4, 0.42, stage, ha="center", va="bottom", fontsize=7.5)
    # A line over the stages of each group, with its name.
    look: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 7.5, "color": style.GREY}
    for name, stages in _GROUPS.items():
        start = STAGES.index(stages[0]) - _WIDTH / 2
        end = STAGES.index(stages[-1]) + _WIDTH / 2 - _GAP / 2
        axes.plot([start, end], [0.72, 0.72], color=style.GREY, linewidth=0.8)
        axes.text((start + end) / 2, 0.78, name, **look)
    axes.set_xlim(-1.5, len(STAGES) - 0.45)
    axes.set_ylim(-(len(sets) - 1) * _ROW_PITCH - 0.4, 1.16)
    axes.set_title("Share of wall time by stage: PIL decode, PIL resize, stages run sequentially")
    rests = {name: percent(max(0.0, 1 - sum(shares.values()))) for name, shares in sets.items()}
    rest = ", ".join(f"{name} {share}" for name, share in rests.items())
    style.place_caption(figure, rows, f"wall time in no stage: {rest}")
    return figure


def _pil_shares(tables: Tables) -> tuple[Shares, list[Row]]:
    """The shares, and the rows that they are of."""
    rows: dict[str, Row] = {}
    for image_set, csv in serial.CSVS.items():
        pil_rows = [row for row in ok_rows(tables.get(csv, [])) if row["decoder"] == "pil"]
        if pil_rows:
            rows[SHORT_SETS[image_set]] = pil_rows[0]
    if not rows:
        raise NothingToDrawError(f"no row of decoder pil has status ok in {', '.join(tables)}")
    sets = {
        name: {stage: row[f"{stage}_share"] or 0.0 for stage in STAGES}
        for name, row in rows.items()
    }
    return sets, list(rows.values())


def _fill(share: float) -> str:
    return to_hex(_SHADES(min(1.0, share))).upper()


def _flow(axes: Axes, y: float, shares: dict[str, float]) -> None:
    width, height = _WIDTH - 0.08 - _GAP / 2, _HEIGHT - 0.08
    look: dict[str, Any] = {"color": style.INK, "lw": 0.7, "shrinkA": 0, "shrinkB": 0}
    for index, share in enumerate(shares.values()):
        fill = _fill(share)
        corner = (index - _WIDTH / 2 + 0.04, y - _HEIGHT / 2 + 0.04)
        shape = "round,pad=0.04,rounding_size=0.06"
        box = FancyBboxPatch(corner, width, height, boxstyle=shape, fc=fill, ec=style.INK, lw=0.6)
        axes.add_patch(box)
        weight = "bold" if share >= 0.1 else "normal"
        style.write_inside(axes, corner[0] + width / 2, y, percent(share), fill, fontweight=weight)
        if index:
            start = (index - 1 + _WIDTH / 2 - _GAP / 2, y)
            end = (index - _WIDTH / 2, y)
            arrow = FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=6, **look)
            axes.add_patch(arrow)
