"""Figure 20: images per second and core by system, the same job; the gate on their pixels."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.cluster import cells as cluster
from experiments.cluster.systems import SYSTEMS
from harness.drawing import style
from harness.drawing.format import digits, percent
from harness.drawing.labels import SETS
from harness.drawing.rendering import Tables, output
from harness.table import Row, distinct, join_distinct, ok_rows

#: Fill and hatch of this suite's jobs, and of others.
_OURS = (style.BAR, "")
_OTHER = ("#FFFFFF", "//")
_MARKS = {"passed": "", "failed": " ✗", "not checked": " †"}


@output(
    "fig-20-cluster",
    "The same job on this suite, Ray Data and Daft: images per second and core",
    cluster.CSV,
)
def draw(tables: Tables) -> Figure:
    """A panel per image set, a bar per system."""
    rows = tables[cluster.CSV]
    measured = ok_rows(rows)
    sets = distinct(measured, "image_set")
    names = [name for name in SYSTEMS if any(row["system"] == name for row in measured)]
    figure = style.new_figure(1.4 + 0.3 * len(names))
    panels = figure.subplots(1, len(sets), squeeze=False).ravel()
    for axes, name in zip(panels, sets, strict=True):
        _bars(axes, names, [row for row in measured if row["image_set"] == name])
        axes.set(xlabel="images per second and core", title=SETS[name].capitalize())
        axes.locator_params(axis="x", nbins=5)  # two panels: room for few numbers
    for axes in panels[1:]:
        axes.set_yticklabels([])
    style.place_legend(figure, {"this suite": _OURS, "others": _OTHER})
    # Each system loads as many images as it can in the time.
    described = [dict(row) | {"n_images": ""} for row in measured]
    style.place_caption(figure, described, *_remarks(rows, measured))
    return figure


def _bars(axes: Axes, names: Sequence[str], rows: Sequence[Row]) -> None:
    """A bar for each row, in the place of its system."""
    for row in rows:
        name = row["system"]
        y = names.index(name)
        rate, cores = row["img_per_s_per_core"], row["cores"]
        fill, hatch = _OURS if SYSTEMS[name].is_ours else _OTHER
        axes.barh(y, rate, height=0.6, color=fill, hatch=hatch, **style.EDGE)
        ends = (row["img_per_s_min"] / cores, row["img_per_s_max"] / cores)
        style.draw_range(axes, ends, y)
        share = row["share_of_ours"]
        text = digits(row["img_per_s_per_core"]) + _MARKS.get(row["gate"], "")
        if share and name != cluster.OURS:
            text += f"  ({percent(share)})"
        style.write_beside_bar(axes, max(rate, ends[1]), y, text)
    style.prepare_bar_axes(axes, [SYSTEMS[name].label for name in names], margin=0.35)


def _remarks(rows: Sequence[Row], measured: Sequence[Row]) -> list[str]:
    failed = any(row["gate"] == "failed" for row in measured)
    remarks = [
        "mock model of 0 ms; the steady part, without start-up",
        f"{join_distinct(measured, 'cores')} cores; in brackets: of {SYSTEMS[cluster.OURS].label}",
        "✗ pixels fail the frontier's gate" if failed else "no pixels fail the frontier's gate",
        style.mark_remark(measured),
    ]
    remarks.append(style.spread_remark(measured, "lines"))
    absent = {row["system"]: row for row in rows if row["status"] != "ok"}
    remarks.append(style.omission_remark(absent.values(), _label))
    return remarks


def _label(row: Row) -> str:
    return SYSTEMS[row["system"]].label
