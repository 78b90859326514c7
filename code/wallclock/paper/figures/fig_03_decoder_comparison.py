"""Figure 3: milliseconds to decode one image, by decoder, for both image sets."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import decoders
from wallclock.paper.csvfile import Row, distinct, number, ok_rows
from wallclock.paper.figures import style
from wallclock.paper.format import digits
from wallclock.paper.labels import DECODERS, SETS
from wallclock.paper.rendering import NothingToDrawError, Tables, output
from wallclock.spec import IMAGE_SETS


@output(
    "fig-03-decoder-comparison",
    "Milliseconds to decode one image, by decoder and image set",
    decoders.CSV,
)
def draw(tables: Tables) -> Figure:
    """Mean time a decoder, with a line from p50 to p90; a panel an image set, own scales."""
    rows = tables[decoders.CSV]
    measured = ok_rows(rows)
    sets = [name for name in IMAGE_SETS if any(row["image_set"] == name for row in measured)]
    if not sets:
        known = " or ".join(IMAGE_SETS)
        raise NothingToDrawError(f"no row in {decoders.CSV} is of an image set called {known}")
    names = distinct(rows, "decoder")
    figure = style.new_figure(1.05 + 0.42 * len(names))
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    for axes, image_set in zip(panels, sets, strict=True):
        _panel(axes, [row for row in rows if row["image_set"] == image_set], names)
        style.horizontal_bars(axes, [_name(decoder, rows) for decoder in names], 0.14)
        axes.set_title(_title(image_set, measured))
    buffers = " / ".join(f"{int(n):,}" for n in distinct(measured, "n_buffers"))
    remarks = (
        f"{buffers} images in memory",
        "bar: mean, line: p50 to p90",
        style.mark_explained(measured),
        style.left_out(rows),
    )
    style.place_caption(figure, style.caption(measured, *remarks))
    return figure


def _panel(axes: Axes, rows: Sequence[Row], names: Sequence[str]) -> None:
    for row in rows:
        y = names.index(row["decoder"])
        if row["status"] != "ok":
            style.beside_bar(axes, 0, y, row["status"]).set_color(style.GREY)
            continue
        mean, p50, p90 = (number(row[column]) for column in ("mean_ms", "p50_ms", "p90_ms"))
        if mean is None or p50 is None or p90 is None:
            raise NothingToDrawError(f"decoder {row['decoder']} has status ok but an empty time")
        axes.barh(y, mean, height=0.6, color=style.BAR, **style.EDGE)
        # Not an error bar: those are relative to the mean, which may lie outside p50 to p90.
        style.range_line(axes, (p50, p90), y)
        style.beside_bar(axes, max(mean, p90), y, f"{digits(mean)}{style.mark(row)}")
    axes.set_xlabel("milliseconds per image")


def _title(image_set: str, rows: Sequence[Row]) -> str:
    """The set's name and the sizes of its images, without which a time means little."""
    row = next(row for row in rows if row["image_set"] == image_set)
    title, kilobytes, megapixels = SETS[image_set], row["median_kb"], row["median_megapixels"]
    title = title[:1].upper() + title[1:]
    if not kilobytes or not megapixels:
        return title
    return f"{title}\n(median {digits(kilobytes)} KB, {float(megapixels):.2g} megapixels)"


def _name(decoder: str, rows: Sequence[Row]) -> str:
    libraries = distinct([row for row in rows if row["decoder"] == decoder], "library")
    name = DECODERS[decoder]
    if not libraries:
        return name
    return libraries[0] if libraries[0].startswith(name) else f"{name}\n({libraries[0]})"
