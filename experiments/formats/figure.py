"""Figure 15: the time to decode a picture against the size of its file, by format and quality."""

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from experiments.formats import cells as formats
from harness.drawing import style
from harness.drawing.labels import DECODERS
from harness.drawing.rendering import Tables, output
from harness.table import Row, distinct, join_distinct, ok_rows

#: Format and variant → label, colour, marker.
_LOOKS = {
    ("jpeg", "baseline"): ("JPEG baseline", "#00568C", "o"),
    ("jpeg", "progressive"): ("JPEG progressive", "#D55E00", "s"),
    ("jpeg", "444"): ("JPEG 4:4:4", "#3A8FC2", "^"),
    ("png", ""): ("PNG", "#222222", "D"),
    ("webp", "lossy"): ("WebP lossy", "#2FB48F", "v"),
    ("webp", "lossless"): ("WebP lossless", "#15573F", "P"),
    ("avif", ""): ("AVIF", "#B0508A", "X"),
}
_PANELS = {"full": "Full size", "auto": "Reduced size (JPEG only)"}


@output("fig-15-formats", "Decoding time against file size, by image format", formats.CSV)
def draw(tables: Tables) -> Figure:
    """A panel for full and for reduced size; a point for each quality, by its fastest decoder."""
    rows = tables[formats.CSV]
    figure = style.new_figure(3.6)
    panels = figure.subplots(1, len(_PANELS), sharex=True, sharey=True)
    drawn: list[Row] = []
    handles: dict[str, Artist] = {}
    for axes, (scale, title) in zip(panels, _PANELS.items(), strict=True):
        fastest = _fastest(rows, scale)
        _draw_panel(axes, fastest)
        axes.set_title(title)
        drawn += fastest
        lines, labels = axes.get_legend_handles_labels()
        handles |= zip(labels, lines, strict=True)
    panels[0].set_ylabel("ms per picture, one thread")
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper left", ncols=len(_LOOKS),
        handlelength=1.6, handletextpad=0.4, columnspacing=1.0, fontsize=7,
    )  # fmt: skip
    style.place_caption(
        figure,
        drawn,
        f"fastest decoder of each: {join_distinct(drawn, 'decoder', DECODERS)}",
        "joined points: one format at rising quality",
        style.spread_remark(drawn),
        _missing(rows),
    )
    return figure


def _missing(rows: Sequence[Row]) -> str:
    """What has no time; a decoder that has none at all is named once."""
    present = set(distinct(ok_rows(rows), "decoder"))

    def name(row: Row) -> str:
        label = DECODERS[row["decoder"]]
        return f"{label} {row['what']}" if row["decoder"] in present else label

    by_name = {name(row): row for row in rows if row["status"] != "ok"}
    return style.omission_remark(by_name.values(), name)


def _fastest(rows: Sequence[Row], scale: str) -> list[Row]:
    """Of each encoding the row of the decoder with the shortest mean."""
    best: dict[str, Row] = {}
    for row in sorted(ok_rows(rows), key=_mean_ms):
        if row["dct_scale"] == scale:
            best.setdefault(row["what"], row)
    return list(best.values())


def _mean_ms(row: Row) -> float:
    time: float = row["mean_ms"]
    return time


def _draw_panel(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(color="#E4E4E4", linewidth=0.5)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:,g}")
    axes.minorticks_off()
    axes.set_xlabel("KB per file, median")
    for (format, variant), (label, colour, marker) in _LOOKS.items():
        series = [row for row in rows if row["format"] == format and row["variant"] == variant]
        if not series:
            continue
        for row in series:
            kilobytes = row["median_kb"]
            ends = [row["mean_ms_min"], row["mean_ms_max"]]
            axes.plot([kilobytes, kilobytes], ends, color=style.GREY, linewidth=0.9)
        points = sorted((row["median_kb"], row["mean_ms"]) for row in series)
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=colour, marker=marker, ms=5, label=label)
