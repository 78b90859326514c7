"""Figure 3: milliseconds to decode one image, by decoder, for both image sets."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wallclock.paper.csvfile import number, ok_rows
from wallclock.paper.figures.style import (
    BAR,
    EDGE,
    GREY,
    INK,
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
from wallclock.paper.labels import DECODERS
from wallclock.paper.rendering import NothingToDrawError, Tables
from wallclock.spec import IMAGE_SETS

STEM = "fig-03-decoder-comparison"
TITLE = "Milliseconds to decode one image, by decoder and image set"
SOURCES: tuple[str, ...] = ("decoder-comparison.csv",)
OPTIONAL: tuple[str, ...] = ()

_TITLES = {"small_256": "Images of 256 px", "original": "Originals at full resolution"}
_BAR_HEIGHT = 0.6


def draw(tables: Tables) -> Figure:
    """Mean time a decoder, with a line from p50 to p90; a panel for each image set, own scales.

    Raises:
        NothingToDrawError: no row of a known image set has status ok.
    """
    rows = tables[SOURCES[0]]
    measured = ok_rows(rows)
    sets = [name for name in IMAGE_SETS if any(row["image_set"] == name for row in measured)]
    if not sets:
        raise NothingToDrawError(
            f"no row in {SOURCES[0]} is of an image set called {' or '.join(IMAGE_SETS)}"
        )
    decoders = list(dict.fromkeys(row["decoder"] for row in rows))
    figure = new_figure(1.05 + 0.42 * len(decoders))
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, sets, strict=True):
        _panel(axes, [row for row in rows if row["image_set"] == name], decoders)
        axes.set_title(_title(name, measured))
    panels[0].set_yticks(range(len(decoders)), [_name(decoder, rows) for decoder in decoders])
    panels[0].invert_yaxis()
    buffers = " / ".join(dict.fromkeys(f"{int(row['n_buffers']):,}" for row in measured))
    remarks = (
        f"{buffers} images in memory",
        "bar: mean, line: p50 to p90",
        mark_explained(measured),
        left_out(rows),
    )
    place_caption(figure, caption(measured, *remarks))
    return figure


def _panel(axes: Axes, rows: Sequence[Row], decoders: Sequence[str]) -> None:
    for row in rows:
        y = decoders.index(row["decoder"])
        if row["status"] != "ok":
            beside_bar(axes, 0, y, row["status"]).set_color(GREY)
            continue
        mean, p50, p90 = (number(row[column]) for column in ("mean_ms", "p50_ms", "p90_ms"))
        if mean is None or p50 is None or p90 is None:
            raise NothingToDrawError(f"decoder {row['decoder']} has status ok but an empty time")
        axes.barh(y, mean, height=_BAR_HEIGHT, color=BAR, **EDGE)
        # Not an error bar: those are relative to the mean, which may lie outside p50 to p90.
        axes.plot([p50, p90], [y, y], color=INK, linewidth=1, marker="|", markersize=6)
        end = max(mean, p90)
        beside_bar(axes, end, y, f"{mean:.3g}{mark(row)}")
    axes.margins(x=0.14)
    axes.set_xlim(left=0)
    axes.set_xlabel("milliseconds per image")
    bare_y_axis(axes)


def _title(image_set: str, rows: Sequence[Row]) -> str:
    """The set's name and the sizes of its images, without which a time means little."""
    row = next(row for row in rows if row["image_set"] == image_set)
    kilobytes, megapixels = number(row["median_kb"]), number(row["median_megapixels"])
    if kilobytes is None or megapixels is None:
        return _TITLES[image_set]
    return f"{_TITLES[image_set]}\n(median {kilobytes:.3g} KB, {megapixels:.2g} megapixels)"


def _name(decoder: str, rows: Sequence[Row]) -> str:
    library = next(
        (row["library"] for row in rows if row["decoder"] == decoder and row["library"]), ""
    )
    name = DECODERS.get(decoder, decoder)
    if not library or library.startswith(name):
        return library or name
    return f"{name}\n({library})"
