"""Figure 11: images a second against closeness to Pillow's pixels, one point a loader."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wallclock.paper.csvfile import number, ok_rows
from wallclock.paper.figures.style import (
    GREY,
    INK,
    Row,
    caption,
    left_out,
    new_figure,
    place_caption,
)
from wallclock.paper.labels import SYSTEMS
from wallclock.paper.rendering import NothingToDrawError, Tables

STEM = "fig-11-frontier"
TITLE = "Throughput of loaders against the fidelity of their pictures"
SOURCES: tuple[str, ...] = ("frontier.csv",)
OPTIONAL: tuple[str, ...] = ()

#: Further to the right nothing can be told apart: a rounding error in every tenth value.
_SAME_DB = 66.0
_SETS = {"small_256": "images of 256 px", "original": "originals"}
#: Fill, marker and size: the two that the text speaks of, and all others.
_MARKS = {"ours": ("#D55E00", "*", 13.0), "paper": ("#00568C", "D", 7.0)}
_OTHER = ("#FFFFFF", "o", 5.5)
_PER_ROW = 2
#: What placing a name needs to know, in points, about: a letter, a line.
_LETTER_PT, _LINE_PT = 3.5, 8.5


def draw(tables: Tables) -> Figure:
    """A panel for each set of images; up is faster, right is closer to Pillow's antialiased resize.

    Raises:
        NothingToDrawError: no row has both a rate and a PSNR.
    """
    rows = tables[SOURCES[0]]
    measured = [
        row
        for row in ok_rows(rows)
        if number(row["img_per_s"]) and number(row["psnr_db"]) is not None
    ]
    panels = list(dict.fromkeys(_panel_of(row) for row in measured))
    if not panels:
        raise NothingToDrawError(f"no row in {SOURCES[0]} has both a rate and a PSNR")
    n_rows = -(-len(panels) // _PER_ROW)
    figure = new_figure(0.7 + 3.0 * n_rows)
    grid = figure.subplots(n_rows, min(len(panels), _PER_ROW), squeeze=False).ravel()
    drawn = {}
    for axes, panel in zip(grid, panels, strict=False):
        drawn[axes] = _draw_panel(axes, [row for row in measured if _panel_of(row) == panel])
        axes.set_title(_title(panel))
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes in grid[::_PER_ROW][:n_rows]:
        axes.set_ylabel("images per second")
    # Each system loads as many images as it can in the time: a range says enough. No network runs.
    place_caption(
        figure,
        caption(
            [{**row, "n_images": "", "weights": ""} for row in measured], *_remarks(rows, measured)
        ),
    )
    # Only now has each panel its size, which tells names that touch from names that do not.
    figure.draw_without_rendering()
    for axes, points in drawn.items():
        _name_points(axes, points)
    return figure


def _panel_of(row: Row) -> tuple[str, str, str]:
    return row["corpus"], row["image_set"], row["subset"]


def _title(panel: tuple[str, str, str]) -> str:
    corpus, image_set, subset = panel
    if corpus != "folder":
        return _SETS.get(image_set, image_set).capitalize()
    return "A folder's photos" + ("" if subset == "all" else f", {subset} JPEG")


def _remarks(rows: Sequence[Row], measured: Sequence[Row]) -> list[str]:
    counts = [int(row["n_images"]) for row in measured]
    cores = " / ".join(dict.fromkeys(row["cores"] for row in measured))
    absent = {row["system"]: row for row in rows if row["status"] != "ok"}
    return [
        f"{min(counts):,} to {max(counts):,} images a repeat",
        f"{cores} cores each, pages cached",
        "all: batches of 224 × 224 RGB in host memory; PSNR: median image",
        "vertical lines: slowest to fastest repeat"
        if any(row["repeats"] != "1" for row in measured)
        else "",
        left_out(list(absent.values()), lambda row: SYSTEMS.get(row["system"], row["system"])),
    ]


def _draw_panel(axes: Axes, rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """Draw the points, and say where each system's is."""
    points = {row["system"]: (_x(row), number(row["img_per_s"]) or 0.0) for row in rows}
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.5)
    for row in rows:
        x, y = points[row["system"]]
        fill, marker, size = _MARKS.get(row["system"], _OTHER)
        low, high = number(row["img_per_s_min"]) or y, number(row["img_per_s_max"]) or y
        axes.plot([x, x], [low, high], color=GREY, linewidth=0.9, zorder=2)
        axes.plot(
            [x], [y], marker=marker, markersize=size, color=fill, markeredgecolor=INK, zorder=3
        )
    rates = [y for _, y in points.values()]
    axes.set_ylim(0.62 * min(rates), 1.6 * max(rates))
    # Ticks where the range is short, too: a log axis may have no power of ten in it.
    axes.set_yticks(
        [
            t
            for e in range(6)
            for t in (10**e, 2 * 10**e, 5 * 10**e)
            if min(rates) / 2 < t < 2 * max(rates)
        ]
    )
    axes.minorticks_off()
    left = 5 * int(min(x for x, _ in points.values()) / 5)
    axes.set_xlim(left - 3, _SAME_DB + 5)
    ticks = list(range(left, 61, 10))
    axes.set_xticks([*ticks, _SAME_DB], [*(str(tick) for tick in ticks), "same"])
    axes.set_xlabel("PSNR against Pillow's antialiased resize, dB")
    return points


def _x(row: Row) -> float:
    return min(number(row["psnr_db"]) or 0.0, _SAME_DB)


def _name_points(axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Beside each point its name, moved down until it stands clear of those above it."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    panel = axes.get_window_extent()
    wide, high = (72 * pixels / axes.figure.dpi for pixels in (panel.width, panel.height))

    def place_of(x: float, y: float) -> tuple[float, float]:
        return (
            wide * (x - left) / (right - left),
            high * math.log(y / bottom) / math.log(top / bottom),
        )

    taken = [(a - 4, a + 4, b) for a, b in (place_of(x, y) for x, y in points.values())]
    for system, (x, y) in sorted(points.items(), key=lambda item: -item[1][1]):
        name, bold = SYSTEMS.get(system, system), system in _MARKS
        width = _LETTER_PT * len(name) * (1.08 if bold else 1.0)
        at_x, at_y = place_of(x, y)
        start = at_x + 8 if at_x + 8 + width < wide else at_x - 8 - width
        place, line = at_y, {"arrowstyle": "-", "color": GREY, "linewidth": 0.4, "shrinkA": 1}
        line["relpos"] = (0.0 if start > at_x else 1.0, 0.5)
        while any(
            start < b and a < start + width and abs(place - c) < _LINE_PT for a, b, c in taken
        ):
            place -= 1.0
        taken.append((start, start + width, place))
        named = axes.annotate(
            name, (x, y), (start - at_x, place - at_y), textcoords="offset points", va="center", fontsize=6.6,
            fontweight="bold" if bold else "normal",
            arrowprops=line if at_y - place > _LINE_PT / 2 else None,
        )  # fmt: skip
        named.set_in_layout(False)
