"""Stacked seconds per stage, one bar a recipe, and one for the run with workers: figures 1 and 1b."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text

from wallclock.clock import STAGES
from wallclock.paper.csvfile import number, ok_rows
from wallclock.paper.figures.style import (
    EDGE,
    INK,
    OTHER_STYLE,
    STAGE_STYLES,
    Row,
    bare_y_axis,
    beside_bar,
    caption,
    is_dark,
    left_out,
    mark,
    mark_explained,
    new_figure,
    place_caption,
)
from wallclock.paper.labels import DECODERS
from wallclock.paper.rendering import NothingToDrawError

OTHER = "unattributed"
#: Segments from this share of their bar on are labelled, if the label fits.
_LABELLED_SHARE = 0.05
#: Widths, as shares of the longest bar, that a label needs lying and standing.
_LYING, _STANDING = 0.045, 0.02
_BAR_HEIGHT = 0.62
#: From this share on, the forward pass leaves no room to see the rest.
_DWARFING = 0.5


@dataclass(frozen=True)
class _Bar:
    """One bar: a row of a serial table, or of one whose stages overlapped."""

    row: Row
    label: str
    #: Stages ran side by side in several processes: their sum is not the wall.
    overlapped: bool = False

    @property
    def wall(self) -> float:
        """Wall clock in seconds per 100,000 images."""
        return number(self.row["seconds_per_100k"]) or 0.0


def draw(
    rows: Sequence[Row], source: str, image_set: str, workers_rows: Sequence[Row] = ()
) -> Figure:
    """Draw the recipes of one serial table; the row of the null decoder goes into the caption.

    `workers_rows` are runs with worker processes, drawn beside them: busy seconds, wall marked.

    Raises:
        NothingToDrawError: no recipe has status ok.
    """
    recipes = [row for row in ok_rows(rows) if row["decoder"] != "null"]
    if not recipes:
        raise NothingToDrawError(f"no recipe in {source} has status ok")
    overlapped = [_Bar(row, _workers_name(row), overlapped=True) for row in ok_rows(workers_rows)]
    bars = [*(_Bar(row, _name(row)) for row in recipes), *overlapped]
    # On a CPU the forward pass dwarfs the stages before it: a second panel shows them alone.
    dwarfed = any(
        row["device_kind"] == "cpu" and (number(row["forward_share"]) or 0) > _DWARFING
        for row in recipes
    )
    panels = 2 if dwarfed else 1
    figure = new_figure(1.2 + panels * (0.45 + 0.48 * len(bars)))
    axes = figure.subplots(panels, 1, squeeze=False)[:, 0]
    _panel(axes[0], bars, excluded=())
    axes[0].set_title(f"Wall clock by stage, {image_set}")
    if dwarfed:
        _panel(axes[1], bars, excluded=("forward",))
        axes[1].set_title("The same without forward: shares are of what remains")
    shown = [bar.row for bar in bars]
    for panel in axes:
        panel.set_xlabel(_axis_label(shown))
    _legend(figure, bars)
    repeated = any(row["repeats"] != "1" for row in recipes)
    spread = "line under a bar: fastest to slowest repeat" if repeated else ""
    busy = (
        "with workers: busy seconds of all processes, which overlap; diamond: wall"
        if overlapped
        else ""
    )
    remarks = (
        spread,
        busy,
        *_impossible(overlapped),
        _floor(rows),
        _fidelity(recipes),
        mark_explained(recipes),
        left_out(rows),
    )
    place_caption(figure, caption(shown, *remarks))
    return figure


def stage_seconds(row: Row, excluded: Sequence[str] = ()) -> dict[str, float]:
    """Seconds per 100,000 images of each stage that took any, and of the unattributed rest, in order.

    Raises:
        NothingToDrawError: the row has no wall clock.
    """
    wall, total = number(row["wall_s"]), number(row["seconds_per_100k"])
    if not wall or not total:
        raise NothingToDrawError(f"recipe {row['recipe']} has status ok but no wall clock")
    seconds = {
        name: (number(row.get(f"{name}_s", "")) or 0.0) * total / wall for name in (*STAGES, OTHER)
    }
    return {name: value for name, value in seconds.items() if value > 0 and name not in excluded}


def _panel(axes: Axes, bars: Sequence[_Bar], excluded: Sequence[str]) -> None:
    stacks = [stage_seconds(bar.row, excluded) for bar in bars]
    longest = max(sum(seconds.values()) for seconds in stacks)
    for position, (bar, seconds) in enumerate(zip(bars, stacks, strict=True)):
        # the table's own number: the medians of the parts need not add up to that of the whole
        whole = bar.wall if not (excluded or bar.overlapped) else sum(seconds.values())
        _stack(axes, position, seconds, whole, longest)
        if bar.overlapped:
            _busy_and_wall(axes, position, bar, whole, wall=not excluded)
        else:
            beside_bar(axes, whole, position, f"{whole:,.0f} s").set_fontweight("bold")
        if not excluded:
            _spread(axes, position, bar.row)
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.invert_yaxis()
    axes.margins(x=0.16 if any(bar.overlapped for bar in bars) else 0.11, y=0.04)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    bare_y_axis(axes)


def _stack(
    axes: Axes, position: int, seconds: dict[str, float], whole: float, longest: float
) -> None:
    left = 0.0
    for name, width in seconds.items():
        fill, hatch = _style(name)
        axes.barh(position, width, left=left, height=_BAR_HEIGHT, color=fill, hatch=hatch, **EDGE)
        if width >= _LABELLED_SHARE * whole and width >= _STANDING * longest:
            label = _share_label(axes, left + width / 2, position, width / whole, fill)
            label.set_rotation(0 if width >= _LYING * longest else 90)
        left += width


def _busy_and_wall(axes: Axes, position: int, bar: _Bar, busy: float, wall: bool) -> None:
    """The label of a bar that is not a wall, and the wall where it lies."""
    words = f"{busy:,.0f} s busy"
    if wall:
        words = f"wall {bar.wall:,.0f} s\n({words})"
        y = position - _BAR_HEIGHT / 2 - 0.1
        axes.plot([0, bar.wall], [y, y], color=INK, linewidth=0.9)
        axes.plot([bar.wall], [y], color=INK, marker="D", markersize=3.5)
    beside_bar(axes, max(busy, bar.wall if wall else 0.0), position, words).set_fontweight("bold")


def _share_label(axes: Axes, x: float, y: float, share: float, fill: str) -> Text:
    # The box in the fill's own colour keeps a hatch from running through the digits.
    box = {"boxstyle": "round,pad=0.05", "facecolor": fill, "edgecolor": "none"}
    colour = "white" if is_dark(fill) else INK
    return axes.text(
        x, y, f"{100 * share:.0f} %", ha="center", va="center", color=colour, fontsize=7.5, bbox=box
    )


def _spread(axes: Axes, position: int, row: Row) -> None:
    """The fastest and the slowest repeat, as a thin line along the end of the bar."""
    wall, total = number(row["wall_s"]), number(row["seconds_per_100k"])
    low, high = number(row["wall_s_min"]), number(row["wall_s_max"])
    if wall and total and low and high and high > low:
        y = position + _BAR_HEIGHT / 2 + 0.07
        ends = [low * total / wall, high * total / wall]
        axes.plot(ends, [y, y], color=INK, linewidth=0.9, marker="|", markersize=3)


def _style(name: str) -> tuple[str, str]:
    return OTHER_STYLE if name == OTHER else STAGE_STYLES[name]


def _name(row: Row) -> str:
    resizer = DECODERS.get(row["resizer"], row["resizer"])
    decoder = DECODERS.get(row["decoder"], row["decoder"])
    return f"{decoder} decode\n{resizer} {row['interpolation']} resize{mark(row)}"


def _workers_name(row: Row) -> str:
    return f"{row['recipe']}: {row['workers']} workers,\nbatch {row['batch_size']}"


def _legend(figure: Figure, bars: Sequence[_Bar]) -> None:
    seen = {name for bar in bars for name in stage_seconds(bar.row)}
    names = [name for name in (*STAGES, OTHER) if name in seen]
    handles = []
    for name in names:
        fill, hatch = _style(name)
        handles.append(Patch(facecolor=fill, hatch=hatch * 2, label=name, **EDGE))
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=len(handles),
        handlelength=1.1,
        handleheight=1.1,
        handletextpad=0.4,
        columnspacing=1.0,
    )


def _axis_label(recipes: Sequence[Row]) -> str:
    label = "seconds per 100,000 images"
    if any(row["seconds_per_100k_origin"] == "extrapolated" for row in recipes):
        counts = " / ".join(dict.fromkeys(f"{int(row['n_images']):,}" for row in recipes))
        label += f" (extrapolated from n = {counts})"
    return label


def _impossible(bars: Sequence[_Bar]) -> list[str]:
    """Which runs spent more busy seconds than all their processes had: a run too short for its queues."""
    return [
        f"{bar.row['recipe']}: more busy seconds than its processes had in that wall: its queue was full at the start"
        for bar in bars
        if sum(stage_seconds(bar.row).values()) > 1.02 * bar.wall * (int(bar.row["workers"]) + 1)
    ]


def _floor(rows: Sequence[Row]) -> str:
    for row in ok_rows(rows):
        seconds = number(row["seconds_per_100k"])
        if row["decoder"] == "null" and seconds is not None:
            return f"harness floor {seconds:.3g} s"
    return ""


def _fidelity(recipes: Sequence[Row]) -> str:
    """How near each recipe's pixels are to the first one's: a faster resize may be less work."""
    found = []
    for row in recipes:
        psnr = number(row["psnr_db"])
        if psnr is not None:
            found.append(f"{DECODERS.get(row['decoder'], row['decoder'])} {psnr:.0f} dB")
    return f"PSNR against the first recipe: {', '.join(found)}" if found else ""
