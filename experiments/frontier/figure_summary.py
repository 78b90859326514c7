"""Figure 0: images per second of every loader, a dot per loader, for photos and for thumbnails."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.frontier import cells as frontier
from experiments.frontier import levels, pairs
from harness.drawing import style
from harness.drawing.format import count_noun, digits, factor
from harness.drawing.labels import SETS
from harness.drawing.rendering import NothingToDrawError, Tables, output
from harness.table import Row, join_distinct, ok_rows

#: The fill of our own dot, as in figure 11.
_OURS = "#D55E00"
_OTHERS = "#3A4048"
#: Inches of a loader's line, and of everything around the lines.
_LINE_IN, _AROUND_IN = 0.235, 1.25


@output("fig-00-summary", "Images per second of every loader", frontier.CSV)
def draw(tables: Tables) -> Figure:
    """A panel per image set; a dot is a loader's median, its line the slowest to fastest repeat.

    A loader that less fidelity makes faster has two dots.
    """
    measured = [row for row in ok_rows(tables[frontier.CSV]) if row["img_per_s"]]
    panels = _panels(measured)
    all_rows = [row for rows in panels for row in rows]
    names = _by_rate(panels[0], all_rows)
    figure = style.new_figure(_AROUND_IN + _LINE_IN * len(names))
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True).ravel()
    for axes, rows in zip(grid, panels, strict=True):
        _draw_panel(axes, rows, names)
    # Names stand at the first panel only; ours is the first of them.
    grid[0].get_yticklabels()[0].set(fontweight="bold", color=_OURS)
    figure.suptitle(_finding(panels), x=0.01, ha="left", fontsize=9.5, fontweight="bold")
    described = [dict(row) | {"n_images": "", "weights": ""} for row in all_rows]
    style.place_caption(
        figure,
        described,
        f"{join_distinct(all_rows, 'cores')} cores each, pages cached",
        style.spread_remark(all_rows, "lines"),
        levels.marks_remark(all_rows),
        _at_the_looser_level(panels),
        style.disturbed_remark(all_rows, lambda row: frontier.LABELS[row["system"]]),
    )
    return figure


def _panels(measured: Sequence[Row]) -> list[list[Row]]:
    """Photos of the first folder, or else generated originals; then thumbnails.

    Each has a row of ours.
    """
    squashed = [row for row in measured if row["preprocess"] in ("", "squash")]
    everything = [row for row in squashed if row["subset"] == "all"]
    folders = [row for row in everything if row["corpus"] == "folder"]
    photos = [row for row in folders if row["folder"] == folders[0]["folder"]]
    generated = [row for row in everything if row["corpus"] != "folder"]
    large = photos or [row for row in generated if row["image_set"] == "original"]
    small = [row for row in generated if row["image_set"] == "small_256"]
    panels = [rows for rows in (large, small) if any(row["system"] == "ours" for row in rows)]
    if not panels:
        raise NothingToDrawError(f"no rate of our loader in {frontier.CSV}")
    return panels


def _by_rate(first: Sequence[Row], rows: Sequence[Row]) -> list[str]:
    """All loaders, ours first, then the fastest of the first panel first."""
    # Of two rows of a system the last one is the faster.
    rates = {row["system"]: row["img_per_s"] for row in first}
    systems = dict.fromkeys(row["system"] for row in rows)
    return sorted(systems, key=lambda name: (name != "ours", -rates.get(name, 0.0)))


def _draw_panel(axes: Axes, rows: Sequence[Row], names: Sequence[str]) -> None:
    """Draw the dots of one image set, each loader on its line."""
    axes.set_title(_title(rows[0]))
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.5)
    axes.set_xlabel("images per second")
    for y, name in enumerate(names):
        _draw_line(axes, [row for row in rows if row["system"] == name], y)
    labels = ["wallclock" if name == "ours" else frontier.LABELS[name] for name in names]
    # Last: it ends the autoscaling of the rates' axis at zero.
    style.prepare_bar_axes(axes, labels, 0.18)
    axes.xaxis.set_major_locator(MaxNLocator(4))


def _draw_line(axes: Axes, rows: Sequence[Row], y: int) -> None:
    """A loader's dots, if it was measured on these images, and its rates beside them."""
    ends = []
    for row in rows:
        rate = row["img_per_s"]
        colour = _OURS if row["system"] == "ours" else _OTHERS
        low, high = row["img_per_s_min"] or rate, row["img_per_s_max"] or rate
        axes.plot([low, high], [y, y], color=colour, linewidth=1.2, alpha=0.6, zorder=2)
        mark = levels.mark(row["level"], colour)
        axes.plot([rate], [y], marker="o", ms=6, mec=colour, mew=1.2, zorder=3, **mark)
        ends += [rate, high]
    if rows:
        is_ours = rows[0]["system"] == "ours"
        rates = " / ".join(digits(row["img_per_s"]) for row in rows)
        text = style.write_beside_bar(axes, max(ends), y, rates)
        weight = "bold" if is_ours else "normal"
        text.set(fontsize=7.5, color=_OURS if is_ours else _OTHERS, fontweight=weight)


def _title(row: Row) -> str:
    if row["corpus"] != "folder":
        return SETS[row["image_set"]].capitalize()
    return count_noun(row["n_unique"], "photo") if row["n_unique"] else "Photos"


def _finding(panels: Sequence[Sequence[Row]]) -> str:
    """Ours over the next fastest faithful loader, panel by panel."""
    ratios = _ratios(panels, levels.FAITHFUL)
    if not ratios:
        return "Images per second of every loader"
    return f"{' and '.join(ratios)} over the next fastest loader"


def _at_the_looser_level(panels: Sequence[Sequence[Row]]) -> str:
    """The title's ratios again, where another loader is the next at the looser level."""
    strict, loose = (f"{decibels:g} dB" for decibels in levels.LEVELS.values())
    ratios = _ratios(panels, levels.CLOSE)
    if ratios == _ratios(panels, levels.FAITHFUL):
        return f"the title's ratios: to loaders with {strict}, and with {loose}"
    return f"the title's ratios: to loaders with {strict}; with {loose}: {' and '.join(ratios)}"


def _ratios(panels: Sequence[Sequence[Row]], level: str) -> list[str]:
    """`1.33× on photos`; of those whose interval contains 1, that they are a tie."""
    column = f"speedup_vs_{frontier.NEXT[level]}"
    ratios = []
    for rows in panels:
        ours = next(row for row in rows if row["system"] == "ours")
        if ours[column]:
            tie = " (a tie)" if pairs.is_tie(ours, column) else ""
            ratios.append(f"{factor(ours[column])}{tie} on {_images(ours)}")
    return ratios


def _images(row: Row) -> str:
    """What a row's images are, in a word."""
    if row["corpus"] == "folder":
        return "photos"
    return "thumbnails" if row["image_set"] == "small_256" else "originals"
