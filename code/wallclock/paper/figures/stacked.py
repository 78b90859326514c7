"""Stacked seconds per stage, one bar for each serial recipe: figures 1 and 1b."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text

from wallclock.clock import STAGES
from wallclock.paper.csvfile import number, ok_rows
from wallclock.paper.figures.style import (
    DECODERS,
    EDGE,
    INK,
    OTHER_STYLE,
    STAGE_STYLES,
    NothingToDrawError,
    Row,
    bare_y_axis,
    beside_bar,
    caption,
    left_out,
    mark,
    mark_explained,
    new_figure,
    place_caption,
)

OTHER = "unattributed"
#: Segments from this share of their bar on are labelled, if the label fits.
_LABELLED_SHARE = 0.05
#: Widths, as shares of the longest bar, that a label needs lying and standing.
_LYING, _STANDING = 0.045, 0.02
_BAR_HEIGHT = 0.62


def draw(rows: Sequence[Row], source: str, image_set: str) -> Figure:
    """Draw the recipes of one serial table; the row of the null decoder goes into the caption.

    Raises:
        NothingToDrawError: no recipe has status ok.
    """
    recipes = [row for row in ok_rows(rows) if row["decoder"] != "null"]
    if not recipes:
        raise NothingToDrawError(f"no recipe in {source} has status ok")
    # On a CPU the forward pass dwarfs the stages before it: a second panel shows them alone.
    on_cpu = any(row["device_kind"] == "cpu" for row in recipes)
    panels = 2 if on_cpu else 1
    figure = new_figure(1.2 + panels * (0.45 + 0.48 * len(recipes)))
    axes = figure.subplots(panels, 1, squeeze=False)[:, 0]
    _panel(axes[0], recipes, excluded=())
    axes[0].set_title(f"Wall clock by stage, {image_set}")
    if on_cpu:
        _panel(axes[1], recipes, excluded=("forward",))
        axes[1].set_title("The same without forward: shares are of what remains")
    for panel in axes:
        panel.set_xlabel(_axis_label(recipes))
    _legend(figure, recipes)
    repeated = any(row["repeats"] != "1" for row in recipes)
    spread = "line under a bar: fastest to slowest repeat" if repeated else ""
    remarks = (spread, _floor(rows), _fidelity(recipes), mark_explained(recipes), left_out(rows))
    place_caption(figure, caption(recipes, *remarks))
    return figure


def stage_seconds(row: Row, excluded: Sequence[str] = ()) -> dict[str, float]:
    """Seconds per 100,000 images of each stage that took any, and of the unattributed rest, in order.

    Raises:
        NothingToDrawError: the row has no wall clock.
    """
    wall, total = number(row["wall_s"]), number(row["seconds_per_100k"])
    if not wall or not total:
        raise NothingToDrawError(f"recipe {row['recipe']} has status ok but no wall clock")
    seconds = {name: (number(row[f"{name}_s"]) or 0.0) * total / wall for name in (*STAGES, OTHER)}
    return {name: value for name, value in seconds.items() if value > 0 and name not in excluded}


def _panel(axes: Axes, recipes: Sequence[Row], excluded: Sequence[str]) -> None:
    bars = [stage_seconds(row, excluded) for row in recipes]
    longest = max(sum(seconds.values()) for seconds in bars)
    for position, (row, seconds) in enumerate(zip(recipes, bars, strict=True)):
        whole = sum(seconds.values())
        if not excluded:
            # the table's own number: the medians of the parts need not add up to that of the whole
            whole = number(row["seconds_per_100k"]) or whole
            _spread(axes, position, row)
        _bar(axes, position, seconds, whole, longest)
    axes.set_yticks(range(len(recipes)), [_name(row) for row in recipes])
    axes.invert_yaxis()
    axes.margins(x=0.11, y=0.04)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    bare_y_axis(axes)


def _bar(axes: Axes, position: int, seconds: dict[str, float], whole: float, longest: float) -> None:
    left = 0.0
    for name, width in seconds.items():
        fill, hatch = _style(name)
        axes.barh(position, width, left=left, height=_BAR_HEIGHT, color=fill, hatch=hatch, **EDGE)
        if width >= _LABELLED_SHARE * whole and width >= _STANDING * longest:
            label = _share_label(axes, left + width / 2, position, width / whole, fill)
            label.set_rotation(0 if width >= _LYING * longest else 90)
        left += width
    beside_bar(axes, left, position, f"{whole:,.0f} s").set_fontweight("bold")


def _share_label(axes: Axes, x: float, y: float, share: float, fill: str) -> Text:
    # The box in the fill's own colour keeps a hatch from running through the digits.
    box = {"boxstyle": "round,pad=0.05", "facecolor": fill, "edgecolor": "none"}
    colour = "white" if _is_dark(fill) else INK
    return axes.text(x, y, f"{100 * share:.0f} %", ha="center", va="center", color=colour, fontsize=7.5, bbox=box)


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


def _is_dark(colour: str) -> bool:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return bool(0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 < 0.3)


def _name(row: Row) -> str:
    resizer = DECODERS.get(row["resizer"], row["resizer"])
    decoder = DECODERS.get(row["decoder"], row["decoder"])
    return f"{decoder} decode\n{resizer} {row['interpolation']} resize{mark(row)}"


def _legend(figure: Figure, recipes: Sequence[Row]) -> None:
    seen = {name for row in recipes for name in stage_seconds(row)}
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
