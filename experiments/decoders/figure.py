"""Figure 3: the time of each decoder on one image."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.decoders import cells as decoders
from harness.drawing import style
from harness.drawing.bars import draw_bars
from harness.drawing.format import digits
from harness.drawing.labels import DECODERS, SETS
from harness.drawing.rendering import NothingToDrawError, Tables, output
from harness.spec import IMAGE_SETS
from harness.table import Row, distinct, ok_rows


@output(
    "fig-03-decoder-comparison",
    "Milliseconds to decode one image, by decoder and image set",
    decoders.CSV,
)
def draw(tables: Tables) -> Figure:
    """Mean time per decoder, with a line from p50 to p90; a panel per image set."""
    rows = tables[decoders.CSV]
    measured = ok_rows(rows)
    names = distinct(rows, "decoder")
    sets = [name for name in IMAGE_SETS if name in distinct(measured, "image_set")]
    if not sets:
        valid = " or ".join(IMAGE_SETS)
        raise NothingToDrawError(f"no row in {decoders.CSV} is of an image set called {valid}")
    figure = style.new_figure(1.05 + 0.42 * len(names))
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    for axes, image_set in zip(panels, sets, strict=True):
        by_decoder = {row["decoder"]: row for row in rows if row["image_set"] == image_set}
        columns = ("mean_ms", "p50_ms", "p90_ms")
        draw_bars(axes, [by_decoder.get(name) for name in names], columns, height=0.6)
        style.prepare_bar_axes(axes, [_decoder_name(name, rows) for name in names], 0.14)
        axes.set_xlabel("milliseconds per image")
        axes.set_title(_set_title(image_set, measured))
    buffers = " / ".join(f"{n:,}" for n in distinct(measured, "n_buffers"))
    style.place_caption(
        figure,
        measured,
        f"{buffers} images in memory",
        "bar: mean, line: p50 to p90",
        style.mark_remark(measured),
        style.omission_remark(rows),
    )
    return figure


def _set_title(image_set: str, rows: Sequence[Row]) -> str:
    """The set's name and the sizes of its images, without which a time means little."""
    row = next(row for row in rows if row["image_set"] == image_set)
    title = SETS[image_set][:1].upper() + SETS[image_set][1:]
    if not row["median_kb"] or not row["median_megapixels"]:
        return title
    megapixels = f"{row['median_megapixels']:.2g} megapixels"
    return f"{title}\n(median {digits(row['median_kb'])} KB, {megapixels})"


def _decoder_name(decoder: str, rows: Sequence[Row]) -> str:
    libraries = distinct([row for row in rows if row["decoder"] == decoder], "library")
    name = DECODERS[decoder]
    if not libraries:
        return name
    return libraries[0] if libraries[0].startswith(name) else f"{name}\n({libraries[0]})"
