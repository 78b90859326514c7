"""Figure 14: the analytic model's utilization over batch sizes, and the walls that it compares."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import analytic
from paper.csvfile import Row, distinct, join_distinct, ok_rows
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


@output(
    "fig-14-analytic",
    "Accelerator utilization by the analytic model, and the walls that it compares",
    analytic.CSV,
    analytic.WALLS_CSV,
)
def draw(tables: Tables) -> Figure:
    """Utilization over batch sizes, the source's and this machine's; the walls as points."""
    sweep = ok_rows(tables[analytic.CSV])
    walls = ok_rows(tables[analytic.WALLS_CSV])
    here = [row for row in sweep if row["case"] == "this machine"]
    if not here:
        raise NothingToDrawError(f"no row in {analytic.CSV} is of this machine")
    figure = style.new_figure(4.1)
    left, right = figure.subplots(1, 2, width_ratios=(4, 5))
    _utilization(left, sweep)
    _walls(right, walls)
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
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.16), fontsize=6.5, ncols=2)


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
    """A point for each wall and image set, on a logarithmic scale; a line over its range."""
    names = distinct(rows, "what")
    for row in rows:
        rate = float(row["img_per_s"])
        y = names.index(row["what"])
        colour, look = _SET_LOOKS[row["image_set"]]
        if row["wall"] == analytic.ELSEWHERE:
            colour, look = "white", "o"
        # Only storage and transform differ between the sets.
        side = "center"
        if row["wall"] in ("storage", "transform"):
            side = "right" if row["image_set"] == "original" else "left"
        ends = [float(row["img_per_s_min"] or rate), float(row["img_per_s_max"] or rate)]
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
