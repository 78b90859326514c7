"""Figure 14: the analytic model's utilization over batch sizes, and the walls that it compares."""

from collections.abc import Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import analytic
from paper.csvfile import Row, distinct, joined, ok_rows
from paper.figures import style
from paper.format import digits
from paper.labels import CORPORA, SHORT_SETS, weights
from paper.rendering import NothingToDrawError, Tables, output

#: Marker and line of the source's scenarios; colour, marker and line of this machine's image sets.
_SOURCE = {"workers: 8": "o-", "workers: 16": "s--", "workers: 32": "^:", "samples of 5 MB": "v-."}
_SETS = {"small_256": ("#56B4E9", "D-"), "original": ("#D55E00", "P--")}


@output(
    "fig-14-analytic",
    "Accelerator utilization by the analytic model, and the walls that it compares",
    *(analytic.CSV, analytic.WALLS_CSV),
)
def draw(tables: Tables) -> Figure:
    """Utilization over batch sizes, the source's and this machine's; the walls as points."""
    sweep, walls = ok_rows(tables[analytic.CSV]), ok_rows(tables[analytic.WALLS_CSV])
    own = [row for row in sweep if row["case"] == "this machine"]
    if not own:
        raise NothingToDrawError(f"no row in {analytic.CSV} is of this machine")
    figure = style.new_figure(4.1)
    left, right = figure.subplots(1, 2, width_ratios=(4, 5))
    _utilization(left, sweep)
    _walls(right, walls)
    about = (joined(own, "device"), joined(own, "corpus", CORPORA), weights(own))
    style.place_note(
        figure,
        *(*about, f"n = {joined(walls, 'n_images')} images"),
        "computed from parts, each measured once; cold storage: median, slowest and fastest pass",
        "source: ResNet-50 training on an A100, samples of 500 KB, workers of 250 MB/s",
        "hollow: on the fitted line (left); the paper's T4, scaled by cited peaks (right)",
        joined(own, "note"),
    )
    return figure


def _utilization(axes: Axes, rows: Sequence[Row]) -> None:
    """The source's scenarios; of this machine, each image set with the workers that load most."""
    for scenario, look in _SOURCE.items():
        case = [row for row in rows if (row["case"], row["scenario"]) == ("source", scenario)]
        _line(axes, case, look, style.INK, f"source, {scenario}")
    for image_set, (colour, look) in _SETS.items():
        own = [row for row in rows if row["image_set"] == image_set]
        cases = [list(group) for _, group in groupby(own, lambda row: row["scenario"])]
        if cases:
            best = max(cases, key=lambda case: float(case[0]["transform_img_per_s"]))
            name = f"here, {SHORT_SETS[image_set]}, {best[0]['scenario']}"
            _line(axes, best, look, colour, name)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set(xlabel="images in a batch", ylabel="accelerator utilization, %", ylim=(0, 106))
    axes.set_title("Transform against step")
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.16), fontsize=6.5, ncols=2)


def _line(axes: Axes, rows: Sequence[Row], look: str, colour: str, label: str) -> None:
    """A line with a marker at each batch, hollow where its step was not timed."""
    points = [(int(row["batch_size"]), 100 * float(row["utilization"])) for row in rows]
    for point, row in zip(points, rows, strict=True):
        if row["step_origin"] == "extrapolated":
            axes.plot(*point, look[0], ms=4.5, mfc="white", mec=colour, zorder=3)
    axes.plot(*zip(*points, strict=True), look, color=colour, ms=4.5, lw=1.2, label=label)


def _walls(axes: Axes, rows: Sequence[Row]) -> None:
    """A point for each wall and image set, on a logarithmic scale; a line over its range."""
    names = distinct(rows, "what")
    for row in rows:
        rate, y = float(row["img_per_s"]), names.index(row["what"])
        colour, look = _SETS[row["image_set"]]
        if row["wall"] == analytic.ELSEWHERE:
            colour, look = "white", "o"
        # Only storage and transform differ between the sets.
        beside = "right" if row["image_set"] == "original" else "left"
        side = beside if row["wall"] in ("storage", "transform") else "center"
        ends = [float(row[f"img_per_s_{end}"] or rate) for end in ("min", "max")]
        axes.plot(ends, [y, y], color=style.INK, lw=0.9, zorder=2)
        axes.plot(rate, y, look[0], ms=5, mfc=colour, mec=style.INK, mew=0.6)
        axes.text(rate, y - 0.2, digits(rate), ha=side, va="bottom", fontsize=6)
    axes.set(xscale="log", ylim=(len(names) - 0.5, -0.7), xlabel="images per second")
    axes.set_title("Walls")
    axes.set_yticks(range(len(names)), names)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(axis="y", color="#DDDDDD", lw=0.6)
    axes.margins(x=0.12)
