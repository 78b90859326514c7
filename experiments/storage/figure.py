"""Figure 17: images per second, decoded and resized, by how and where they are stored."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.storage import cells as storage
from harness.drawing import style
from harness.drawing.labels import SETS, SHORT_SETS
from harness.drawing.rendering import NothingToDrawError, Tables, output
from harness.table import Row, distinct, ok_rows

#: Source → colour and marker; one that is not listed is a store of another latency.
_SOURCES = {"warm": ("#222222", "o"), "cold": ("#00568C", "s"), "http-5": ("#D55E00", "D")}
_OTHER = ("#888888", "P")
_FORMS = {"tar": "tar", "pixels_256": "pixels, 256 px"}


@output("fig-17-storage", "Which storage keeps a decoder busy", storage.CSV)
def draw(tables: Tables) -> Figure:
    """A panel for each image set; in it a line for each form and source, up to a tensor."""
    rows = _select(ok_rows(tables[storage.CSV]), finish="tensor")
    if not rows:
        raise NothingToDrawError(f"no row with status ok and finish=tensor in {storage.CSV}")
    sets = sorted(distinct(rows, "image_set"), key=list(SHORT_SETS).index)
    forms = {name: distinct(_select(rows, image_set=name), "form") for name in sets}
    figure = style.new_figure(1.3 + 0.36 * max(len(members) for members in forms.values()))
    panels = figure.subplots(1, len(sets), squeeze=False)[0]
    for name, axes in zip(sets, panels, strict=True):
        _draw_panel(axes, _select(rows, image_set=name), forms[name])
        axes.set_title(SETS[name].capitalize())
        axes.set_xlabel("images per second, decoded and resized")
    handles = [_handle(source) for source in _sources(rows)]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), fontsize=7)
    in_flight = max(row["in_flight"] for row in rows)
    style.place_caption(
        figure,
        rows,
        f"hollow: one by one; filled: {in_flight} threads",
        "cold: pages dropped before each pass",
        "HTTP: a server on this machine, with the delay shown",
        f"rates of the bytes alone: {storage.CSV}",
        style.omission_remark(_select(tables[storage.CSV], source="cold"), _name),
    )
    return figure


def _select(rows: Sequence[Row], **cells: str) -> list[Row]:
    """The rows with these cells."""
    return [row for row in rows if cells.items() <= row.items()]


def _sources(rows: Sequence[Row]) -> list[str]:
    """The sources of these rows, those with a colour of their own first."""
    sources = distinct(rows, "source")
    others = sorted(name for name in sources if name not in _SOURCES)
    return [name for name in _SOURCES if name in sources] + others


def _name(row: Row) -> str:
    return f"{SHORT_SETS[row['image_set']]} {row['what']}"


def _handle(source: str) -> Line2D:
    colour, marker = _SOURCES.get(source, _OTHER)
    label = f"HTTP, {source[5:]} ms added" if source.startswith("http") else source
    return Line2D([], [], color=colour, marker=marker, ms=4.5, lw=1.2, label=label)


def _draw_panel(axes: Axes, rows: Sequence[Row], forms: Sequence[str]) -> None:
    axes.set_xscale("log")
    axes.set_ylim(len(forms) - 0.5, -0.5)
    axes.set_yticks(range(len(forms)), [_FORMS.get(form, form) for form in forms])
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.tick_params(axis="x", labelsize=7, labelbottom=True)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#E4E4E4", linewidth=0.5)
    for edge in range(1, len(forms)):
        axes.axhline(edge - 0.5, color="#DDDDDD", linewidth=0.5)
    sources = _sources(rows)
    step = 0.8 / max(len(sources), 1)
    for row in rows:
        y = forms.index(row["form"]) - 0.4 + step * (sources.index(row["source"]) + 0.5)
        rate = row["img_per_s"]
        colour, marker = _SOURCES.get(row["source"], _OTHER)
        fill = "white"
        if row["access"] == "ahead":
            fill = colour
            alike = _select(rows, form=row["form"], source=row["source"], access="sequential")
            if alike:
                ends = [alike[0]["img_per_s"], rate]
                axes.plot(ends, [y, y], color=colour, lw=1.1, zorder=2)
        axes.plot(rate, y, marker, ms=3.8, mfc=fill, mec=colour, zorder=3)
