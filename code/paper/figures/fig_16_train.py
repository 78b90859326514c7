"""Figure 16: a training job's rate against its parts', and where its step's time goes."""

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from experiments import train
from paper.csvfile import Row, ok_rows
from paper.figures import style
from paper.format import percent
from paper.rendering import NothingToDrawError, Tables, output

#: Column → label, fill, hatch of the shares of a job's wall time.
_SHARES = {
    "utilization": ("step, as long as alone", "#00568C", ""),
    "slowed_share": ("step, longer than alone", "#D55E00", "///"),
    "wait_share": ("waiting for the loader", "#DDDDDD", ""),
}
#: Where images are augmented.
_AUGMENTED = {
    "none": "not augmented",
    "cpu": "augmented in workers",
    "device": "augmented on the device",
}
#: Label, marker and fill of the rates: of the parts alone, and a column's of the job.
_MARKS = {
    "loader": ("loader alone", "^", "white"),
    "step": ("step alone", "s", "white"),
    "img_per_s": ("both together", "o", style.BAR),
}


@output("fig-16-train", "A training step behind its loader: rates, and where time goes", train.CSV)
def draw(tables: Tables) -> Figure:
    """A line for each job: its rate with those of its parts, and the shares of its wall time."""
    rows = ok_rows(tables[train.CSV])
    jobs = [row for row in rows if row["part"] == "together" and row["utilization"]]
    if not jobs:
        raise NothingToDrawError(f"no row in {train.CSV} has a loader and a step together")
    figure = style.new_figure(1.5 + 0.42 * len(jobs))
    left, right = figure.subplots(1, 2, sharey=True)
    _rates(left, jobs, rows)
    _shares(right, jobs)
    style.prepare_bar_axes(right, [_name(row) for row in jobs], margin=0)
    handles = _handles(left, right)
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper left", ncols=4, handlelength=1.3,
        columnspacing=1.1, fontsize=7,
    )  # fmt: skip
    style.place_caption(figure, jobs, "ResNet-50", style.spread_remark(jobs, "lines"))
    return figure


def _name(job: Row) -> str:
    settings = f"{job['dtype'].upper()}, batch {job['batch_size']}, {job['workers']} workers"
    return f"{settings}\n{_AUGMENTED[job['augment']]}"


def _rates(axes: Axes, jobs: Sequence[Row], rows: Sequence[Row]) -> None:
    """Points on a logarithmic scale: the job's rate, and those of its parts."""
    for y, job in enumerate(jobs):
        style.draw_range(axes, (float(job["img_per_s_min"]), float(job["img_per_s_max"])), y)
        for part, (label, marker, fill) in _MARKS.items():
            rate = _rate_of(part, job, rows) if part in ("loader", "step") else job[part]
            if not rate:
                continue
            axes.plot(
                float(rate), y, marker, label=label, ms=6, mfc=fill, mec=style.INK, mew=0.7,
                ls="none",
            )  # fmt: skip
    axes.set(xscale="log", xlabel="images per second", title="Rate")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:,g}")
    # On less than a decade matplotlib would name minor ticks too.
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(color="#E4E4E4", linewidth=0.5)
    axes.margins(x=0.1)


def _rate_of(part: str, job: Row, rows: Sequence[Row]) -> str:
    """The rate of the loader or the step of a job, alone; empty if it was not measured."""
    for row in rows:
        if row["part"] != part or row["batch_size"] != job["batch_size"]:
            continue
        if part == "loader":
            is_same = row["workers"] == job["workers"] and row["augment"] == job["augment"]
        else:
            on_device = row["augment"] == "device"
            is_same = row["dtype"] == job["dtype"] and on_device == (job["augment"] == "device")
        if is_same:
            return row["img_per_s"]
    return ""


def _shares(axes: Axes, jobs: Sequence[Row]) -> None:
    """The wall time of each job in parts."""
    for y, job in enumerate(jobs):
        start = 0.0
        for column, (label, fill, hatch) in _SHARES.items():
            share = min(100 * float(job[column]), 100 - start)
            axes.barh(y, share, 0.6, start, color=fill, hatch=hatch, label=label, **style.EDGE)
            if share > 12:
                style.write_inside(axes, start + share / 2, y, percent(share / 100, 0), fill)
            start += share
    axes.set(xlim=(0, 100), xlabel="% of wall time")
    axes.set_title("Where its time goes")


def _handles(*panels: Axes) -> dict[str, Artist]:
    """Each label of the panels once, with its first artist."""
    handles: dict[str, Artist] = {}
    for axes in panels:
        artists, labels = axes.get_legend_handles_labels()
        for artist, label in zip(artists, labels, strict=True):
            handles.setdefault(str(label), artist)
    return handles
