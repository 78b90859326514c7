"""Figure 7: the nine stages as a flow chart, with each one's share of the wall time."""

from __future__ import annotations

from html import escape
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from experiments import serial
from wallclock.clock import STAGES
from wallclock.paper.csvfile import Row, number, ok_rows
from wallclock.paper.figures import style
from wallclock.paper.format import percent
from wallclock.paper.labels import SHORT_SETS
from wallclock.paper.rendering import NothingToDrawError, Tables, output

#: Where a stage runs: the first and the last stage of each group.
_GROUPS = (
    ("loader, on the CPU", "read", "assemble"),
    ("device", "h2d", "d2h"),
    ("output", "serialize", "serialize"),
)
_SHADES = LinearSegmentedColormap.from_list("share", ["#FFFFFF", "#F6C9A8", "#D55E00", "#7A2E00"])
_WIDTH, _HEIGHT, _GAP, _ROW_PITCH = 0.86, 0.62, 0.14, 0.86


def mermaid(tables: Tables) -> str:
    """The same chart as Mermaid source. Raises NothingToDrawError."""
    rows = _pil_rows(tables)
    lines = [
        "%% made by python -m wallclock.paper figures; shares of wall time, PIL recipe, serial",
        "flowchart LR",
    ]
    for index, (group, first, last) in enumerate(_GROUPS):
        lines.append(f'  subgraph group{index}["{group}"]')
        for stage in STAGES[STAGES.index(first) : STAGES.index(last) + 1]:
            shares = {name: percent(_share(row, stage)) for name, row in rows.items()}
            text = "".join(f"<br/>{name} {escape(shares[name])}" for name in shares)
            lines.append(f'    {stage}["<b>{stage}</b>{text}"]')
        lines.append("  end")
    lines.append("  " + " --> ".join(STAGES))
    for stage in STAGES:
        fill = _fill(max(_share(row, stage) for row in rows.values()))
        ink = "#FFFFFF" if style.is_dark(fill) else style.INK
        lines.append(f"  style {stage} fill:{fill},stroke:{style.INK},color:{ink}")
    return "\n".join(lines) + "\n"


@output(
    "fig-07-pipeline",
    "The nine stages, and each one's share of the wall time",
    optional=tuple(serial.CSVS.values()),
    text=(".mmd", mermaid),
)
def draw(tables: Tables) -> Figure:
    """A row of boxes an image set, filled by share; the stages ran sequentially."""
    rows = _pil_rows(tables)
    figure = style.new_figure(1.15 + 0.62 * len(rows))
    axes = figure.subplots()
    axes.set_axis_off()
    for position, (name, row) in enumerate(rows.items()):
        y = -position * _ROW_PITCH
        label = name.replace(" images", "\nimages")
        axes.text(-0.62, y, label, ha="right", va="center", fontsize=8, fontweight="bold")
        _flow(axes, y, row)
    for index, stage in enumerate(STAGES):
        axes.text(index - _GAP / 4, 0.42, stage, ha="center", va="bottom", fontsize=7.5)
    for name, first, last in _GROUPS:
        _bracket(axes, name, STAGES.index(first), STAGES.index(last))
    axes.set_xlim(-1.5, len(STAGES) - 0.45)
    axes.set_ylim(-(len(rows) - 1) * _ROW_PITCH - 0.4, 1.16)
    axes.set_title("Share of wall time by stage: PIL decode, PIL resize, stages run sequentially")
    rest = ", ".join(f"{name} {percent(_rest(row))}" for name, row in rows.items())
    caption = style.caption(list(rows.values()), f"wall time in no stage: {rest}")
    style.place_caption(figure, caption)
    return figure


def _pil_rows(tables: Tables) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for image_set, csv in serial.CSVS.items():
        for row in ok_rows(tables.get(csv, [])):
            if row["decoder"] == "pil":
                rows.setdefault(SHORT_SETS[image_set], row)
    if not rows:
        raise NothingToDrawError(f"no row of decoder pil has status ok in {', '.join(tables)}")
    return rows


def _share(row: Row, stage: str) -> float:
    return number(row[f"{stage}_share"]) or 0.0


def _rest(row: Row) -> float:
    return max(0.0, 1 - sum(_share(row, stage) for stage in STAGES))


def _fill(share: float) -> str:
    return to_hex(_SHADES(min(1.0, share))).upper()


def _flow(axes: Axes, y: float, row: Row) -> None:
    for index, stage in enumerate(STAGES):
        share = _share(row, stage)
        fill = _fill(share)
        corner = (index - _WIDTH / 2 + 0.04, y - _HEIGHT / 2 + 0.04)
        width, height = _WIDTH - 0.08 - _GAP / 2, _HEIGHT - 0.08
        shape = "round,pad=0.04,rounding_size=0.06"
        box = FancyBboxPatch(corner, width, height, boxstyle=shape, fc=fill, ec=style.INK, lw=0.6)
        axes.add_patch(box)
        weight = "bold" if share >= 0.1 else "normal"
        middle = corner[0] + width / 2
        style.inside(axes, middle, y, percent(share), fill, fontweight=weight)
        if index:
            ends = ((index - 1 + _WIDTH / 2 - _GAP / 2, y), (index - _WIDTH / 2, y))
            look: dict[str, Any] = {"color": style.INK, "lw": 0.7, "shrinkA": 0, "shrinkB": 0}
            axes.add_patch(FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=6, **look))


def _bracket(axes: Axes, words: str, first: int, last: int) -> None:
    """A line over the stages of one group, with its name."""
    ends = [first - _WIDTH / 2, last + _WIDTH / 2 - _GAP / 2]
    axes.plot(ends, [0.72, 0.72], color=style.GREY, linewidth=0.8)
    axes.text(sum(ends) / 2, 0.78, words, ha="center", va="bottom", fontsize=7.5, color=style.GREY)
