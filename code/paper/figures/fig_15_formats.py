"""Figure 15: the time to decode a picture against the size of its file, by format and quality."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from experiments import formats
from paper.csvfile import Row, distinct, joined, ok_rows
from paper.figures import style
from paper.labels import DECODERS
from paper.rendering import Tables, output

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
    shown = {scale: _fastest(rows, scale) for scale in _PANELS}
    figure = style.new_figure(3.6)
    panels = figure.subplots(1, len(_PANELS), sharex=True, sharey=True)
    for axes, (scale, points) in zip(panels, shown.items(), strict=True):
        _draw_panel(axes, points)
        axes.set_title(_PANELS[scale])
    panels[0].set_ylabel("ms a picture, one thread")
    named = [zip(*axes.get_legend_handles_labels()[::-1], strict=True) for axes in panels]
    handles = dict(pair for pairs in named for pair in pairs)
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper left", ncols=len(_LOOKS),
        handlelength=1.6, handletextpad=0.4, columnspacing=1.0, fontsize=7,
    )  # fmt: skip
    drawn = [row for points in shown.values() for row in points]
    remarks = [f"fastest decoder of each: {joined(drawn, 'decoder', DECODERS)}"]
    remarks += ["joined points: one format at rising quality", style.spread_remark(drawn)]
    style.place_caption(figure, drawn, *remarks, _missing(rows))
    return figure


def _missing(rows: Sequence[Row]) -> str:
    """What has no time; a decoder that has none at all is named once."""
    present = set(distinct(ok_rows(rows), "decoder"))

    def name(row: Row) -> str:
        label = DECODERS[row["decoder"]]
        return f"{label} {row['what']}" if row["decoder"] in present else label

    named = {name(row): row for row in rows if row["status"] != "ok"}
    return style.left_out([*named.values()], name)


def _fastest(rows: Sequence[Row], scale: str) -> list[Row]:
    """Of each encoding the row of the decoder with the shortest mean."""
    best: dict[str, Row] = {}
    for row in sorted(ok_rows(rows), key=lambda row: float(row["mean_ms"])):
        if row["dct_scale"] == scale:
            best.setdefault(row["what"], row)
    return list(best.values())


def _draw_panel(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(color="#E4E4E4", linewidth=0.5)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:,g}")
    axes.minorticks_off()
    axes.set_xlabel("KB a file, median")
    for (format, variant), (label, colour, marker) in _LOOKS.items():
        own = [row for row in rows if (row["format"], row["variant"]) == (format, variant)]
        points = sorted((float(row["median_kb"]), float(row["mean_ms"])) for row in own)
        if not points:
            continue
        for row in own:
            ends = [float(row[f"mean_ms_{end}"]) for end in ("min", "max")]
            axes.plot([float(row["median_kb"])] * 2, ends, color=style.GREY, linewidth=0.9)
        look: dict[str, Any] = {"color": colour, "marker": marker, "ms": 5, "label": label}
        axes.plot(*zip(*points, strict=True), **look)
