"""Figure 11: images per second and closeness to Pillow's pixels, a line per loader."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.frontier import cells as frontier
from experiments.frontier import levels, pairs
from harness.drawing import style
from harness.drawing.labels import SETS, SHORT_SETS
from harness.drawing.rendering import NothingToDrawError, Tables, output
from harness.table import Row, join_distinct, ok_rows

#: From here on images count as equal: a rounding error in every tenth value.
_SAME_DB = 66.0
#: Colour, marker and size: the systems that the text is about, and all others.
_MARKS = {
    "ours": ("#D55E00", "*", 9.0),
    "ours-crop": ("#F2B48A", "*", 9.0),
    "paper": ("#00568C", "D", 5.5),
}
_OTHER = ("#9AA0A6", "o", 5.0)
#: Image sets per row, and the widths of the two panels of each.
_PER_ROW = 2
_WIDTHS = (5, 4)
#: Height in inches of a loader's line, and of title, ticks and label of a panel.
_LINE, _FRAME = 0.165, 0.75


@output(
    "fig-11-frontier", "Throughput of loaders against the fidelity of their images", frontier.CSV
)
def draw(tables: Tables) -> Figure:
    """For each set of images a line per loader, the fastest on top: its rate, and its fidelity."""
    rows = tables[frontier.CSV]
    # A folder's baseline and progressive JPEGs alone are in the table.
    rows = [row for row in rows if row["subset"] in ("", "all")]
    measured = [row for row in ok_rows(rows) if row["img_per_s"] and row["psnr_db"]]
    panels: dict[str, list[Row]] = {}
    for row in measured:
        panels.setdefault(_title(row), []).append(row)
    if not panels:
        raise NothingToDrawError(f"no row in {frontier.CSV} has both a rate and a PSNR")
    sets = list(panels)
    n_columns = min(len(sets), _PER_ROW)
    rows_of_sets = [sets[at : at + n_columns] for at in range(0, len(sets), n_columns)]
    heights = [_FRAME + _LINE * max(len(panels[name]) for name in names) for names in rows_of_sets]
    figure = style.new_figure(0.7 + sum(heights))
    grid = figure.subplots(
        len(heights), 2 * n_columns, squeeze=False, height_ratios=heights,
        width_ratios=_WIDTHS * n_columns,
    )  # fmt: skip
    halves = grid.reshape(-1, 2)
    for (rates, fidelity), name in zip(halves, sets, strict=False):
        _draw_set(rates, fidelity, sorted(panels[name], key=_rate, reverse=True))
        rates.set_title(name)
    for axes in halves[len(sets) :].ravel():
        axes.set_axis_off()
    # Each system loads as many images as it can in the time: a range is enough. No network runs.
    described = [dict(row) | {"n_images": "", "weights": ""} for row in measured]
    style.place_caption(figure, described, *_remarks(rows, measured))
    return figure


def _title(row: Row) -> str:
    if row["corpus"] != "folder":
        return SETS[row["image_set"]].capitalize()
    return f"“{row['folder']}”" if row["folder"] else "A folder's photos"


def _short_title(row: Row) -> str:
    if row["corpus"] != "folder":
        return SHORT_SETS[row["image_set"]]
    return f"“{row['folder']}”" if row["folder"] else "the folder's photos"


def _remarks(rows: Sequence[Row], measured: Sequence[Row]) -> list[str]:
    counts = [row["n_images"] for row in measured]
    compared = join_distinct(measured, "n_compared")
    median = f"median of {compared} images" if compared else "median image"
    versus = [_versus(level, measured) for level in levels.LEVELS]
    absent = {row["system"]: row for row in rows if row["status"] != "ok"}
    cropped = any(row["system"] == "ours-crop" for row in measured)
    crops = "the crop's PSNR: against Pillow's crop" if cropped else ""
    return [
        *versus,
        f"n = {min(counts):,} to {max(counts):,} images a repeat",
        f"{join_distinct(measured, 'cores')} cores each, pages cached",
        "all: batches of 224 × 224 RGB in host memory",
        f"PSNR against Pillow's antialiased resize: {median}, line to the least; =: equal",
        levels.marks_remark(measured),
        crops,
        style.spread_remark(measured, "lines of the rates"),
        style.disturbed_remark(measured, _system_name),
        style.omission_remark(absent.values(), _system_name),
    ]


def _versus(level: str, measured: Sequence[Row]) -> str:
    """Ours over the next fastest of a level, image set by image set; of the looser, if others."""
    name = frontier.NEXT[level]
    column = f"speedup_vs_{name}"
    ratios = [
        f"{pairs.in_words(row, column)} on {_short_title(row)}"
        for row in measured
        if row["system"] == "ours" and row[column] and (name == "next" or row[name] != row["next"])
    ]
    text = f"ours over the next fastest {levels.in_words(level)}"
    return f"{text}: {', '.join(ratios)}" if ratios else ""


def _system_name(row: Row) -> str:
    return frontier.LABELS[row["system"]]


def _rate(row: Row) -> float:
    return row["img_per_s"] or 0.0


def _draw_set(rates: Axes, fidelity: Axes, rows: Sequence[Row]) -> None:
    """A mark per row in each of two panels that share their lines, with its range."""
    for y, row in enumerate(rows):
        rate, psnr = _rate(row), _decibels(row["psnr_db"])
        slowest, fastest = (row[f"img_per_s_{end}"] or rate for end in ("min", "max"))
        _draw_mark(rates, row, rate, (slowest, fastest), y)
        _draw_mark(fidelity, row, psnr, (_decibels(row["psnr_db_min"]) or psnr, psnr), y)
    style.prepare_bar_axes(rates, [_name(row, rows) for row in rows], margin=0.07)
    rates.tick_params(axis="y", labelsize=6.6)
    for label, row in zip(rates.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row["system"] in _MARKS else "normal")
    rates.xaxis.set_major_locator(MaxNLocator(2))
    rates.set_xlabel("images per second")
    fidelity.set(ylim=rates.get_ylim(), yticks=[], xlabel="PSNR, dB")
    fidelity.spines["left"].set_visible(False)
    left, _ = fidelity.get_xlim()
    decibels = list(range(10 * math.ceil(left / 10), int(_SAME_DB) - 10, 10))
    decibels = decibels[:: -(-len(decibels) // 2)]
    fidelity.set_xlim(left, _SAME_DB + 4)
    fidelity.set_xticks([*decibels, _SAME_DB], [*map(str, decibels), "="])
    for axes in (rates, fidelity):
        for y in range(len(rows)):
            axes.axhline(y, color="#E4E4E4", linewidth=0.5, zorder=0)


def _draw_mark(axes: Axes, row: Row, x: float, ends: tuple[float, float], y: int) -> None:
    colour, marker, size = _MARKS.get(row["system"], _OTHER)
    axes.plot(ends, [y, y], color=style.GREY, linewidth=1.1, zorder=2)
    fill = levels.mark(row["level"], colour)
    axes.plot([x], [y], marker=marker, ms=size, mec=style.INK, mew=0.7, zorder=3, **fill)


def _decibels(cell: float | None) -> float:
    return min(cell or 0.0, _SAME_DB)


def _name(row: Row, rows: Sequence[Row]) -> str:
    """The system; of one that has a row for each level, the level of the slower one."""
    same = [other for other in rows if other["system"] == row["system"]]
    name = frontier.LABELS[row["system"]]
    return name if row is same[0] else f"{name} ({row['level'] or 'no level'})"
