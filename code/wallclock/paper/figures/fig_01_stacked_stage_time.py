"""Figures 1 and 1b: where 100,000 images spend their time, by stage, one bar a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import serial, t4
from wallclock.clock import STAGES
from wallclock.paper.csvfile import Row, number, ok_rows
from wallclock.paper.figures import style
from wallclock.paper.format import digits, percent
from wallclock.paper.labels import DECODERS, SETS
from wallclock.paper.rendering import NothingToDrawError, Tables, output

OTHER = "unattributed"
_STYLES = {**style.STAGE_STYLES, OTHER: style.OTHER_STYLE}
#: Segments from this share of their bar on are labelled, if the label fits.
_LABELLED_SHARE = 0.05
#: Widths, as shares of the longest bar, that a horizontal and a vertical label need.
_HORIZONTAL, _VERTICAL = 0.045, 0.02
_BAR_HEIGHT = 0.62
#: From this share on, the forward pass leaves no room to see the rest.
_DWARFING = 0.5


@dataclass(frozen=True)
class _Bar:
    """One bar: a row of a serial table, or of a run with workers, whose stages overlap."""

    row: Row
    label: str
    #: Several processes ran at once: the sum of the stages is not the wall time.
    overlapped: bool = False

    @property
    def wall(self) -> float:
        """Wall time in seconds per 100,000 images."""
        return number(self.row["seconds_per_100k"]) or 0.0


def draw(image_set: str, tables: Tables) -> Figure:
    """Draw the serial recipes of an image set and, versus them, the baseline with its workers.

    Of the baseline the busy seconds are stacked and the wall time is marked. The row of the null
    decoder goes into the caption.
    """
    rows = tables[serial.CSVS[image_set]]
    recipes = [row for row in ok_rows(rows) if row["decoder"] != "null"]
    if not recipes:
        raise NothingToDrawError(f"no recipe in {serial.CSVS[image_set]} has status ok")
    overlapped = [
        _Bar(row, _workers_name(row), overlapped=True)
        for row in ok_rows(tables.get(t4.CSV, []))
        if row["image_set"] == image_set
    ]
    bars = [*(_Bar(row, _name(row)) for row in recipes), *overlapped]
    # On a CPU the forward pass dwarfs the stages before it: a second panel shows them alone.
    on_cpu = [row for row in recipes if row["device_kind"] == "cpu"]
    dwarfed = any((number(row["forward_share"]) or 0) > _DWARFING for row in on_cpu)
    panels = 2 if dwarfed else 1
    figure = style.new_figure(1.2 + panels * (0.45 + 0.48 * len(bars)))
    axes = figure.subplots(panels, 1, squeeze=False)[:, 0]
    _panel(axes[0], bars, excluded=())
    axes[0].set_title(f"Wall time by stage, {SETS[image_set]}")
    if dwarfed:
        _panel(axes[1], bars, excluded=("forward",))
        axes[1].set_title("The same without forward: shares are of what remains")
    shown = [bar.row for bar in bars]
    for panel in axes:
        panel.set_xlabel(_axis_label(shown))
    drawn = {name for bar in bars for name in stage_seconds(bar.row)}
    style.place_legend(figure, {name: _STYLES[name] for name in _STYLES if name in drawn})
    busy = "with workers: busy seconds of all processes, which overlap; diamond: wall time"
    remarks = (
        style.spread_remark(recipes, "line under a bar"),
        busy if overlapped else "",
        *_too_short(overlapped),
        _floor(rows),
        _fidelity(recipes),
        style.mark_explained(recipes),
        style.left_out(rows),
    )
    style.place_caption(figure, style.caption(shown, *remarks))
    return figure


SMALL = output(
    "fig-01-stacked-stage-time",
    "Where 100,000 small images spend their time, by stage and recipe",
    serial.CSVS["small_256"],
    optional=(t4.CSV,),
)(partial(draw, "small_256"))
ORIGINAL = output(
    "fig-01b-stacked-stage-time-original",
    "Where 100,000 originals spend their time, by stage and recipe",
    serial.CSVS["original"],
)(partial(draw, "original"))


def stage_seconds(row: Row, excluded: Sequence[str] = ()) -> dict[str, float]:
    """Seconds per 100,000 images by stage that took any, and OTHER. Raises NothingToDrawError."""
    wall, total = number(row["wall_s"]), number(row["seconds_per_100k"])
    if not wall or not total:
        raise NothingToDrawError(f"recipe {row['recipe']} has status ok but no wall time")
    shown = [name for name in (*STAGES, OTHER) if name not in excluded]
    seconds = {name: (number(row.get(f"{name}_s", "")) or 0.0) * total / wall for name in shown}
    return {name: value for name, value in seconds.items() if value > 0}


def _panel(axes: Axes, bars: Sequence[_Bar], excluded: Sequence[str]) -> None:
    stacks = [stage_seconds(bar.row, excluded) for bar in bars]
    longest = max(sum(seconds.values()) for seconds in stacks)
    for position, (bar, seconds) in enumerate(zip(bars, stacks, strict=True)):
        # The table's own number: the medians of the stages need not add up to the wall time.
        total = bar.wall if not (excluded or bar.overlapped) else sum(seconds.values())
        _stack(axes, position, seconds, total, longest)
        if bar.overlapped:
            _busy_and_wall(axes, position, bar, total, wall=not excluded)
        else:
            style.beside_bar(axes, total, position, f"{digits(total)} s").set_fontweight("bold")
        if not excluded:
            _spread(axes, position, bar.row)
    margin = 0.16 if any(bar.overlapped for bar in bars) else 0.11
    style.horizontal_bars(axes, [bar.label for bar in bars], margin)


def _stack(axes: Axes, y: int, seconds: dict[str, float], total: float, longest: float) -> None:
    left = 0.0
    for name, width in seconds.items():
        fill, hatch = _STYLES[name]
        axes.barh(y, width, left=left, height=_BAR_HEIGHT, color=fill, hatch=hatch, **style.EDGE)
        if width >= _LABELLED_SHARE * total and width >= _VERTICAL * longest:
            # The box in the fill's own colour keeps a hatch from crossing the digits.
            box = {"boxstyle": "round,pad=0.05", "facecolor": fill, "edgecolor": "none"}
            turn = 0 if width >= _HORIZONTAL * longest else 90
            text = percent(width / total, 0)
            style.inside(axes, left + width / 2, y, text, fill, bbox=box, rotation=turn)
        left += width


def _busy_and_wall(axes: Axes, position: int, bar: _Bar, busy: float, wall: bool) -> None:
    """Label the busy seconds of overlapping stages, and mark the wall time."""
    words = f"{digits(busy)} s busy"
    end = busy
    if wall:
        words, end = f"wall {digits(bar.wall)} s\n({words})", max(busy, bar.wall)
        y = position - _BAR_HEIGHT / 2 - 0.1
        axes.plot([0, bar.wall], [y, y], color=style.INK, linewidth=0.9)
        axes.plot([bar.wall], [y], color=style.INK, marker="D", markersize=3.5)
    style.beside_bar(axes, end, position, words).set_fontweight("bold")


def _spread(axes: Axes, position: int, row: Row) -> None:
    """The fastest and the slowest repeat, as a thin line along the end of the bar."""
    wall, total = number(row["wall_s"]), number(row["seconds_per_100k"])
    low, high = number(row["wall_s_min"]), number(row["wall_s_max"])
    if wall and total and low and high and high > low:
        ends = (low * total / wall, high * total / wall)
        style.range_line(axes, ends, position + _BAR_HEIGHT / 2 + 0.07, size=3)


def _name(row: Row) -> str:
    resize = f"{DECODERS[row['resizer']]} {row['interpolation']} resize"
    return f"{DECODERS[row['decoder']]} decode\n{resize}{style.mark(row)}"


def _workers_name(row: Row) -> str:
    return f"{row['recipe']}: {row['workers']} workers,\nbatch {row['batch_size']}"


def _axis_label(recipes: Sequence[Row]) -> str:
    label = "seconds per 100,000 images"
    if any(row["seconds_per_100k_origin"] == "extrapolated" for row in recipes):
        counts = " / ".join(dict.fromkeys(f"{int(row['n_images']):,}" for row in recipes))
        label += f" (extrapolated from n = {counts})"
    return label


def _too_short(bars: Sequence[_Bar]) -> list[str]:
    """Runs with more busy seconds than processes × wall time: their queue was full at the start."""
    return [
        f"{bar.row['recipe']}: more busy seconds than its processes had in that wall time: "
        "its queue was full at the start"
        for bar in bars
        if sum(stage_seconds(bar.row).values()) > 1.02 * bar.wall * (int(bar.row["workers"]) + 1)
    ]


def _floor(rows: Sequence[Row]) -> str:
    floors = [row for row in ok_rows(rows) if row["decoder"] == "null" and row["seconds_per_100k"]]
    return f"harness floor {digits(floors[0]['seconds_per_100k'])} s" if floors else ""


def _fidelity(recipes: Sequence[Row]) -> str:
    """PSNR of each recipe against the first: a faster resize may be less work."""
    parts = [
        f"{DECODERS[row['decoder']]} {float(row['psnr_db']):.0f} dB"
        for row in recipes
        if number(row["psnr_db"]) is not None
    ]
    return f"PSNR against the first recipe: {', '.join(parts)}" if parts else ""
