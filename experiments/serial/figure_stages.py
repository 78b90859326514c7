"""Figures 1 and 1b: where 100,000 images spend their time, by stage, one bar a recipe."""

from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.serial import cells as serial
from experiments.t4 import cells as t4
from harness.drawing import style
from harness.drawing.format import digits, percent
from harness.drawing.labels import DECODERS, SETS
from harness.drawing.rendering import NothingToDrawError, Tables, output
from harness.table import Row, distinct, ok_rows
from wallclock.clock import STAGES

OTHER = "unattributed"
_STYLES = dict(style.STAGE_STYLES) | {OTHER: style.OTHER_STYLE}
#: Segments from this share of their bar on are labelled, if the label fits.
_LABELLED_SHARE = 0.05
#: Widths, as shares of the longest bar, that a horizontal and a vertical label need.
_HORIZONTAL, _VERTICAL = 0.045, 0.02
_BAR_HEIGHT = 0.62
#: From this share on, the forward pass leaves no room to see the rest.
_DWARFING = 0.5


def draw(image_set: str, tables: Tables) -> Figure:
    """Draw the serial recipes of an image set and, versus them, the baseline with its workers.

    The stages of the baseline overlap: its busy seconds are stacked and its wall time is marked.
    The row of the null decoder goes into the caption.
    """
    rows = tables[serial.CSVS[image_set]]
    recipes = [row for row in ok_rows(rows) if row["decoder"] != "null"]
    if not recipes:
        raise NothingToDrawError(f"no recipe in {serial.CSVS[image_set]} has status ok")
    baseline = ok_rows(tables.get(t4.CSV, []))
    overlapped = [row for row in baseline if row["image_set"] == image_set]
    bars = [*recipes, *overlapped]
    # On a CPU the forward pass dwarfs the stages before it: a second panel shows them alone.
    on_cpu = [row for row in recipes if row["device_kind"] == "cpu"]
    dwarfed = any((row["forward_share"] or 0) > _DWARFING for row in on_cpu)
    panels = 2 if dwarfed else 1
    figure = style.new_figure(1.2 + panels * (0.45 + 0.48 * len(bars)))
    axes = figure.subplots(panels, 1, squeeze=False)[:, 0]
    _panel(axes[0], f"Wall time by stage, {SETS[image_set]}", bars)
    if dwarfed:
        title = "The same without forward: shares are of what remains"
        _panel(axes[1], title, bars, excluded="forward")
    drawn = {name for row in bars for name in stage_seconds(row)}
    style.place_legend(figure, {name: _STYLES[name] for name in _STYLES if name in drawn})
    overlap = "with workers: busy seconds of all processes, which overlap; diamond: wall time"
    style.place_caption(
        figure,
        bars,
        style.spread_remark(recipes, "line under a bar"),
        overlap if overlapped else "",
        *_too_short(overlapped),
        _floor(rows),
        _fidelity(recipes),
        style.mark_remark(recipes),
        style.omission_remark(rows),
    )
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


def stage_seconds(row: Row, excluded: str = "") -> dict[str, float]:
    """Seconds per 100,000 images by stage that took any, and OTHER. Raises NothingToDrawError."""
    seconds = {name: _per_100k(row, f"{name}_s") for name in (*STAGES, OTHER)}
    return {name: value for name, value in seconds.items() if value > 0 and name != excluded}


def _per_100k(row: Row, column: str) -> float:
    """A time of the run as seconds per 100,000 images; 0 where there is none."""
    time: float = row.get(column) or 0.0
    wall: float | None = row["wall_s"]
    total: float | None = row["seconds_per_100k"]
    if not wall or not total:
        raise NothingToDrawError(f"recipe {row['recipe']} has status ok but no wall time")
    return time * total / wall


def _overlaps(row: Row) -> bool:
    """Whether several processes ran at once: the sum of the stages is not the wall time."""
    return "workers" in row


def _panel(axes: Axes, title: str, rows: Sequence[Row], excluded: str = "") -> None:
    """A bar for each row, without the stage `excluded`."""
    stacks = [stage_seconds(row, excluded) for row in rows]
    longest = max(sum(seconds.values()) for seconds in stacks)
    for position, (row, seconds) in enumerate(zip(rows, stacks, strict=True)):
        wall, busy = row["seconds_per_100k"], sum(seconds.values())
        # The table's own number: the medians of the stages need not add up to the wall time.
        total = busy if excluded or _overlaps(row) else wall
        _stack(axes, position, seconds, total, longest)
        end, text = total, f"{digits(total)} s"
        if _overlaps(row):
            text += " busy"
            if not excluded:
                end, text = max(busy, wall), f"wall {digits(wall)} s\n({text})"
                _mark_wall_time(axes, position, wall)
        style.write_beside_bar(axes, end, position, text).set_fontweight("bold")
        # The fastest and the slowest repeat, as a thin line along the end of the bar.
        low, high = _per_100k(row, "wall_s_min"), _per_100k(row, "wall_s_max")
        if 0 < low < high and not excluded:
            style.draw_range(axes, (low, high), position + _BAR_HEIGHT / 2 + 0.07, size=3)
    margin = 0.16 if any(map(_overlaps, rows)) else 0.11
    style.prepare_bar_axes(axes, [_name(row) for row in rows], margin)
    axes.set_title(title)
    label = "seconds per 100,000 images"
    if any(row["seconds_per_100k_origin"] == "extrapolated" for row in rows):
        counts = " / ".join(f"{count:,}" for count in distinct(rows, "n_images"))
        label += f" (extrapolated from n = {counts})"
    axes.set_xlabel(label)


def _mark_wall_time(axes: Axes, position: int, wall: float) -> None:
    """A line above a bar up to the wall time, which ends in a diamond."""
    y = position - _BAR_HEIGHT / 2 - 0.1
    axes.plot([0, wall], [y, y], color=style.INK, linewidth=0.9)
    axes.plot([wall], [y], color=style.INK, marker="D", markersize=3.5)


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
            style.write_inside(axes, left + width / 2, y, text, fill, bbox=box, rotation=turn)
        left += width


def _name(row: Row) -> str:
    if _overlaps(row):
        return f"{row['recipe']}: {row['workers']} workers,\nbatch {row['batch_size']}"
    resize = f"{DECODERS[row['resizer']]} {row['interpolation']} resize"
    return f"{DECODERS[row['decoder']]} decode\n{resize}{style.mark(row)}"


def _too_short(rows: Sequence[Row]) -> list[str]:
    """Runs with more busy seconds than processes × wall time: their queue was full at the start."""
    remarks = []
    for row in rows:
        processes = row["workers"] + 1
        available = 1.02 * row["seconds_per_100k"] * processes
        if sum(stage_seconds(row).values()) > available:
            remarks.append(
                f"{row['recipe']}: more busy seconds than its processes had in that wall time: "
                "its queue was full at the start"
            )
    return remarks


def _floor(rows: Sequence[Row]) -> str:
    floors = [row for row in ok_rows(rows) if row["decoder"] == "null" and row["seconds_per_100k"]]
    return f"harness floor {digits(floors[0]['seconds_per_100k'])} s" if floors else ""


def _fidelity(recipes: Sequence[Row]) -> str:
    """PSNR of each recipe against the first: a faster resize may be less work."""
    compared = [row for row in recipes if row["psnr_db"]]
    parts = [f"{DECODERS[row['decoder']]} {row['psnr_db']:.0f} dB" for row in compared]
    return f"PSNR against the first recipe: {', '.join(parts)}" if parts else ""
