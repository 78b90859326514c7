"""Figure 14: the analytic model's utilization over batch sizes, and the walls that it compares."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from experiments import analytic
from paper.csvfile import Row, join_distinct, ok_rows
from paper.figures import style
from paper.format import digits
from paper.labels import CORPORA, SHORT_SETS, weights
from paper.rendering import NothingToDrawError, Tables, output

#: Marker and line of the source's scenarios.
_SOURCE_LOOKS = {
    "workers: 8": "o-",
    "workers: 16": "s--",
    "workers: 32": "^:",
    "samples of 5 MB": "v-.",
}
#: Colour, marker and line of this machine's image sets.
_SET_LOOKS = {"small_256": ("#56B4E9", "D-"), "original": ("#D55E00", "P--")}

#: Walls that differ between the image sets.
_BY_SIZE = ("storage", "transform")


@output(
    "fig-14-analytic",
    "Accelerator utilization by the analytic model, and the walls that it compares",
    analytic.CSV,
    analytic.WALLS_CSV,
)
def draw(tables: Tables) -> Figure:
    """Utilization over batch sizes, the source's and this machine's; the walls in order."""
    sweep = ok_rows(tables[analytic.CSV])
    walls = ok_rows(tables[analytic.WALLS_CSV])
    here = [row for row in sweep if row["case"] == "this machine"]
    if not here:
        raise NothingToDrawError(f"no row in {analytic.CSV} is of this machine")
    figure = style.new_figure(1.6 + 0.16 * len(walls))
    left, right = figure.subplots(1, 2, width_ratios=(4, 5))
    _utilization(left, sweep)
    _walls(right, walls)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", fontsize=6.5, ncols=3)
    style.place_note(
        figure,
        join_distinct(here, "device"),
        join_distinct(here, "corpus", CORPORA),
        weights(here),
        f"n = {join_distinct(walls, 'n_images')} images",
        "computed from parts, each measured once; cold storage: median, slowest and fastest pass",
        "source: ResNet-50 training on an A100, samples of 500 KB, workers of 250 MB/s",
        "hollow: on the fitted line (left); the paper's T4, scaled by cited peaks (right)",
        join_distinct(here, "note"),
    )
    return figure


def _utilization(axes: Axes, rows: Sequence[Row]) -> None:
    """The source's scenarios; of this machine, each image set with the workers that load most."""
    for scenario, look in _SOURCE_LOOKS.items():
        case = [row for row in rows if row["case"] == "source" and row["scenario"] == scenario]
        _line(axes, case, look, style.INK, f"source, {scenario}")
    for image_set, (colour, look) in _SET_LOOKS.items():
        by_scenario: dict[str, list[Row]] = {}
        for row in rows:
            if row["image_set"] == image_set:
                by_scenario.setdefault(row["scenario"], []).append(row)
        if by_scenario:
            fastest = max(by_scenario.values(), key=_transform_rate)
            label = f"here, {SHORT_SETS[image_set]}, {fastest[0]['scenario']}"
            _line(axes, fastest, look, colour, label)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set(xlabel="images in a batch", ylabel="accelerator utilization, %", ylim=(0, 106))
    axes.set_title("Transform against step")


def _transform_rate(case: Sequence[Row]) -> float:
    return float(case[0]["transform_img_per_s"])


def _line(axes: Axes, rows: Sequence[Row], look: str, colour: str, label: str) -> None:
    """A line with a marker at each batch, hollow where its step was not timed."""
    sizes = [int(row["batch_size"]) for row in rows]
    percentages = [100 * float(row["utilization"]) for row in rows]
    for size, percentage, row in zip(sizes, percentages, rows, strict=True):
        if row["step_origin"] == "extrapolated":
            axes.plot(size, percentage, look[0], ms=4.5, mfc="white", mec=colour, zorder=3)
    axes.plot(sizes, percentages, look, color=colour, ms=4.5, lw=1.2, label=label)


def _walls(axes: Axes, rows: Sequence[Row]) -> None:
    """A line per wall, the highest rate on top, on a logarithmic scale; with its range."""
    by_name = {_wall_name(row): row for row in rows}
    in_order = sorted(by_name.items(), key=lambda item: float(item[1]["img_per_s"]), reverse=True)
    for y, (_, row) in enumerate(in_order):
        rate = float(row["img_per_s"])
        colour, look = _SET_LOOKS[row["image_set"]]
        if row["wall"] == analytic.ELSEWHERE:
            colour, look = "white", "o"
        ends = [float(row["img_per_s_min"] or rate), float(row["img_per_s_max"] or rate)]
        axes.plot(ends, [y, y], color=style.INK, lw=0.9, zorder=2)
        axes.plot(rate, y, look[0], ms=5, mfc=colour, mec=style.INK, mew=0.6, zorder=3)
        text = axes.annotate(
            digits(rate), (max(ends), y), (5, 0), textcoords="offset points", va="center"
        )
        text.set_fontsize(6.5)
    axes.set(xscale="log", ylim=(len(in_order) - 0.5, -0.5), xlabel="images per second")
    axes.set_title("Walls")
    axes.set_yticks(range(len(in_order)), [name for name, _ in in_order])
    axes.xaxis.set_major_locator(LogLocator(base=100))
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.tick_params(axis="x", labelsize=7)
    axes.tick_params(axis="y", labelsize=7, length=0)
    axes.grid(axis="y", color="#DDDDDD", lw=0.6)
    axes.margins(x=0.16)


def _wall_name(row: Row) -> str:
    """The wall; of one that depends on the size of the images, of which set. Others are equal."""
    if row["wall"] in _BY_SIZE:
        return f"{row['what']}; {SHORT_SETS[row['image_set']]}"
    return row["what"]
