"""Figure 11: images a second against closeness to Pillow's pixels, one point a loader."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import _levels, _pairs, frontier
from paper.csvfile import Row, join_distinct, number, ok_rows
from paper.figures import style
from paper.labels import SETS, SHORT_SETS, SYSTEMS
from paper.rendering import NothingToDrawError, Tables, output

#: From here on images count as equal: a rounding error in every tenth value.
_SAME_DB = 66.0
#: Colour, marker and size: the systems that the text is about, and all others.
_MARKS = {
    "ours": ("#D55E00", "*", 13.0),
    "ours-crop": ("#F2B48A", "*", 13.0),
    "paper": ("#00568C", "D", 7.0),
}
_OTHER = ("#9AA0A6", "o", 5.5)
_PER_ROW = 2
#: Approximate width of a letter and height of a line of a name, in points.
_LETTER_PT = 3.5
_LINE_PT = 8.5


class _Point(NamedTuple):
    """A loader's name and place in data coordinates."""

    name: str
    x: float
    y: float
    is_bold: bool


@output(
    "fig-11-frontier", "Throughput of loaders against the fidelity of their images", frontier.CSV
)
def draw(tables: Tables) -> Figure:
    """A panel a set of images; up is faster, right is closer to Pillow's antialiased resize."""
    rows = tables[frontier.CSV]
    measured = [row for row in ok_rows(rows) if number(row["img_per_s"]) and row["psnr_db"]]
    panels: dict[tuple[str, str, str], list[Row]] = {}
    for row in measured:
        panels.setdefault((row["corpus"], row["image_set"], row["subset"]), []).append(row)
    if not panels:
        raise NothingToDrawError(f"no row in {frontier.CSV} has both a rate and a PSNR")
    n_rows = -(-len(panels) // _PER_ROW)
    figure = style.new_figure(0.7 + 3.4 * n_rows)
    grid = figure.subplots(n_rows, min(len(panels), _PER_ROW), squeeze=False).ravel()
    drawn = {}
    for axes, (panel, members) in zip(grid, panels.items(), strict=False):
        drawn[axes] = _draw_panel(axes, members)
        axes.set_title(_title(*panel))
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes in grid[::_PER_ROW][:n_rows]:
        axes.set_ylabel("images per second")
    # Each system loads as many images as it can in the time: a range is enough. No network runs.
    described = [dict(row) | {"n_images": "", "weights": ""} for row in measured]
    style.place_caption(figure, described, *_remarks(rows, measured))
    # Only now has each panel its size, without which overlaps of names are unknown.
    figure.draw_without_rendering()
    for axes, points in drawn.items():
        _name_points(axes, points)
    return figure


def _title(corpus: str, image_set: str, subset: str) -> str:
    if corpus != "folder":
        return SETS[image_set].capitalize()
    return "A folder's photos" + ("" if subset == "all" else f", {subset} JPEG")


def _short_title(row: Row) -> str:
    if row["corpus"] != "folder":
        return SHORT_SETS[row["image_set"]]
    return "the folder's photos" if row["subset"] == "all" else f"its {row['subset']} JPEGs"


def _remarks(rows: Sequence[Row], measured: Sequence[Row]) -> list[str]:
    counts = [int(row["n_images"]) for row in measured]
    compared = join_distinct(measured, "n_compared")
    median = f"median of {compared} images" if compared else "median image"
    versus = [_versus(level, measured) for level in _levels.LEVELS]
    absent = {row["system"]: row for row in rows if row["status"] != "ok"}
    cropped = any(row["system"] == "ours-crop" for row in measured)
    crops = "the crop's PSNR: against Pillow's crop" if cropped else ""
    return [
        *versus,
        f"n = {min(counts):,} to {max(counts):,} images a repeat",
        f"{join_distinct(measured, 'cores')} cores each, pages cached",
        f"all: batches of 224 × 224 RGB in host memory; PSNR: {median}",
        style.levels_remark(measured),
        crops,
        style.spread_remark(measured),
        style.disturbed_remark(measured, _system_name),
        style.omission_remark(absent.values(), _system_name),
    ]


def _versus(level: str, measured: Sequence[Row]) -> str:
    """Ours over the next fastest of a level, image set by image set; of the looser, if others."""
    name = frontier.NEXT[level]
    column = f"speedup_vs_{name}"
    ratios = [
        f"{_pairs.in_words(row, column)} on {_short_title(row)}"
        for row in measured
        if row["system"] == "ours" and row[column] and (name == "next" or row[name] != row["next"])
    ]
    text = f"ours over the next fastest {_levels.in_words(level)}"
    return f"{text}: {', '.join(ratios)}" if ratios else ""


def _system_name(row: Row) -> str:
    return SYSTEMS[row["system"]]


def _draw_panel(axes: Axes, rows: Sequence[Row]) -> list[_Point]:
    """Draw the points; return their names and positions in data coordinates."""
    points = []
    rates = []
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.5)
    for row in rows:
        x, y = _x(row), number(row["img_per_s"]) or 0.0
        points.append(_Point(_name(row, rows), x, y, row["system"] in _MARKS))
        colour, marker, size = _MARKS.get(row["system"], _OTHER)
        low, high = number(row["img_per_s_min"]) or y, number(row["img_per_s_max"]) or y
        axes.plot([x, x], [low, high], color=style.GREY, linewidth=0.9, zorder=2)
        fill = style.level_mark(row["level"], colour)
        axes.plot([x], [y], marker=marker, ms=size, mec=style.INK, zorder=3, **fill)
        rates += [y, low, high]
    axes.set_ylim(0.62 * min(rates), 1.6 * max(rates))
    # A short range may have no power of ten in it.
    ticks = [digit * 10**exponent for exponent in range(6) for digit in (1, 2, 5)]
    axes.set_yticks([tick for tick in ticks if min(rates) / 2 < tick < 2 * max(rates)])
    axes.minorticks_off()
    left = 5 * int(min(point.x for point in points) / 5)
    axes.set_xlim(left - 3, _SAME_DB + 5)
    decibels = list(range(left, 61, 10))
    axes.set_xticks([*decibels, _SAME_DB], [*map(str, decibels), "same"])
    axes.set_xlabel("PSNR against Pillow's antialiased resize, dB")
    return points


def _x(row: Row) -> float:
    return min(number(row["psnr_db"]) or 0.0, _SAME_DB)


def _name(row: Row, rows: Sequence[Row]) -> str:
    """The system; of one that has a row for each level, the level of the second one."""
    same = [other for other in rows if other["system"] == row["system"]]
    name = SYSTEMS[row["system"]]
    return name if row is same[0] else f"{name} ({row['level'] or 'no level'})"


def _name_points(axes: Axes, points: Sequence[_Point]) -> None:
    """Write each point's name beside it, moved down until it overlaps none above it."""
    panel = axes.get_window_extent()
    points_per_pixel = 72 / axes.figure.dpi
    width = points_per_pixel * panel.width
    placed = [
        (point, *(points_per_pixel * (axes.transData.transform((point.x, point.y)) - panel.min)))
        for point in points
    ]
    occupied = [(x - 4, x + 4, y) for _, x, y in placed]
    for point, x, y in sorted(placed, key=lambda at: -at[2]):
        length = _LETTER_PT * len(point.name) * (1.08 if point.is_bold else 1.0)
        # The side on which the name stays nearest to its point; of equal ones the right.
        starts = [start for start in (x + 8, x - 8 - length) if 0 < start < width - length]
        # A long name has room on neither side: then it ends at the panel's edge, below the point.
        starts = starts or [max(0.0, width - length)]
        levels = {start: _free_level(occupied, start, start + length, y) for start in starts}
        start = max(levels, key=levels.__getitem__)
        level = levels[start]
        occupied.append((start, start + length, level))
        line = {
            "arrowstyle": "-",
            "color": style.GREY,
            "linewidth": 0.4,
            "shrinkA": 1,
            "relpos": (0.0 if start > x else 1.0, 0.5),
        }
        label = axes.annotate(
            point.name, (point.x, point.y), (start - x, level - y), textcoords="offset points",
            va="center", fontsize=6.6, fontweight="bold" if point.is_bold else "normal",
            arrowprops=line if y - level > _LINE_PT / 2 else None,
        )  # fmt: skip
        label.set_in_layout(False)


def _free_level(
    occupied: Sequence[tuple[float, float, float]], start: float, end: float, level: float
) -> float:
    """The first level from `level` down on which nothing lies between `start` and `end`."""
    while any(
        start < right and left < end and abs(level - height) < _LINE_PT
        for left, right, height in occupied
    ):
        level -= 1.0
    return level
