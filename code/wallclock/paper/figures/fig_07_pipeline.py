"""Figure 7: the nine stages as a flow chart, with each one's share of the wall."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from wallclock.clock import STAGES
from wallclock.paper.csvfile import number, ok_rows
from wallclock.paper.figures.style import (
    GREY,
    INK,
    Row,
    caption,
    is_dark,
    new_figure,
    place_caption,
)
from wallclock.paper.rendering import NothingToDrawError, Tables

STEM = "fig-07-pipeline"
TITLE = "The nine stages, and each one's share of the wall"
SOURCES: tuple[str, ...] = ()
OPTIONAL: tuple[str, ...] = ("t4-serial-stages.csv", "t4-serial-stages-original.csv")

_ROWS = {"t4-serial-stages.csv": "256 px", "t4-serial-stages-original.csv": "originals"}
#: Where a stage happens: the first and the last stage of each.
_PLACES = (
    ("loader, on the CPU", "read", "assemble"),
    ("device", "h2d", "d2h"),
    ("output", "serialize", "serialize"),
)
_SHADES = LinearSegmentedColormap.from_list("share", ["#FFFFFF", "#F6C9A8", "#D55E00", "#7A2E00"])
_WIDTH, _HEIGHT, _GAP, _ROW_PITCH = 0.86, 0.62, 0.14, 0.86


def draw(tables: Tables) -> Figure:
    """A row of boxes for each image set, filled by share; stages are timed one after the other.

    Raises:
        NothingToDrawError: no table has a measured row of Pillow's recipe.
    """
    rows = _pil_rows(tables)
    figure = new_figure(1.15 + 0.62 * len(rows))
    axes = figure.subplots()
    axes.set_axis_off()
    for position, (name, row) in enumerate(rows.items()):
        y = -position * _ROW_PITCH
        axes.text(-0.62, y, name, ha="right", va="center", fontsize=8, fontweight="bold")
        _flow(axes, y, row)
    for index, stage in enumerate(STAGES):
        axes.text(index - _GAP / 4, 0.42, stage, ha="center", va="bottom", fontsize=7.5)
    for place, first, last in _PLACES:
        _bracket(axes, place, STAGES.index(first), STAGES.index(last))
    axes.set_xlim(-1.5, len(STAGES) - 0.45)
    axes.set_ylim(-(len(rows) - 1) * _ROW_PITCH - 0.4, 1.16)
    axes.set_title("Share of the wall by stage: PIL decode, PIL resize, one stage after the other")
    rest = ", ".join(f"{name} {_percent(_rest(row))}" for name, row in rows.items())
    place_caption(figure, caption(list(rows.values()), f"of the wall in no stage: {rest}"))
    return figure


def mermaid(tables: Tables) -> str:
    """The same chart as Mermaid source. Raises NothingToDrawError."""
    rows = _pil_rows(tables)
    lines = [
        "%% made by python -m wallclock.paper figures; shares of the wall, PIL recipe, serial",
        "flowchart LR",
    ]
    for index, (place, first, last) in enumerate(_PLACES):
        lines.append(f'  subgraph place{index}["{place}"]')
        for stage in STAGES[STAGES.index(first) : STAGES.index(last) + 1]:
            shares = "".join(
                f"<br/>{name} {_percent(_share(row, stage)).replace('<', '&lt;')}"
                for name, row in rows.items()
            )
            lines.append(f'    {stage}["<b>{stage}</b>{shares}"]')
        lines.append("  end")
    lines.append("  " + " --> ".join(STAGES))
    for stage in STAGES:
        fill = _fill(max(_share(row, stage) for row in rows.values()))
        lines.append(
            f"  style {stage} fill:{fill},stroke:{INK},color:{'#FFFFFF' if is_dark(fill) else INK}"
        )
    return "\n".join(lines) + "\n"


def _pil_rows(tables: Tables) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for name, label in _ROWS.items():
        for row in ok_rows(tables.get(name, [])):
            if row["decoder"] == "pil":
                found.setdefault(label, row)
    if not found:
        raise NothingToDrawError(f"no row of decoder pil has status ok in {', '.join(tables)}")
    return found


def _share(row: Row, stage: str) -> float:
    return number(row[f"{stage}_share"]) or 0.0


def _rest(row: Row) -> float:
    return max(0.0, 1 - sum(_share(row, stage) for stage in STAGES))


def _percent(share: float) -> str:
    """Whole percents; tenths below ten; what is not measurably there is below a tenth."""
    if share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


def _fill(share: float) -> str:
    return to_hex(_SHADES(min(1.0, share))).upper()


def _flow(axes: Axes, y: float, row: Row) -> None:
    for index, stage in enumerate(STAGES):
        share = _share(row, stage)
        fill = _fill(share)
        corner = (index - _WIDTH / 2 + 0.04, y - _HEIGHT / 2 + 0.04)
        shape = "round,pad=0.04,rounding_size=0.06"
        size = (_WIDTH - 0.08 - _GAP / 2, _HEIGHT - 0.08)
        box = FancyBboxPatch(
            corner, *size, boxstyle=shape, facecolor=fill, edgecolor=INK, linewidth=0.6
        )
        axes.add_patch(box)
        colour = "white" if is_dark(fill) else INK
        weight = "bold" if share >= 0.1 else "normal"
        middle = corner[0] + size[0] / 2
        axes.text(
            middle,
            y,
            _percent(share),
            ha="center",
            va="center",
            fontsize=7.5,
            color=colour,
            fontweight=weight,
        )
        if index:
            ends = ((index - 1 + _WIDTH / 2 - _GAP / 2, y), (index - _WIDTH / 2, y))
            axes.add_patch(FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=6, color=INK, linewidth=0.7,
                                           shrinkA=0, shrinkB=0))  # fmt: skip


def _bracket(axes: Axes, words: str, first: int, last: int) -> None:
    """A line over the stages of one place, with its name."""
    ends = [first - _WIDTH / 2, last + _WIDTH / 2 - _GAP / 2]
    axes.plot(ends, [0.72, 0.72], color=GREY, linewidth=0.8)
    axes.text(sum(ends) / 2, 0.78, words, ha="center", va="bottom", fontsize=7.5, color=GREY)
