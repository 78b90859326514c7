"""Figure 14: the analytic model's utilization over batch sizes."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import analytic
from paper.csvfile import Row, join_distinct, ok_rows
from paper.figures import style
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


@output("fig-14-analytic", "Accelerator utilization by the analytic model", analytic.CSV)
def draw(tables: Tables) -> Figure:
    """Utilization over batch sizes, the source's and this machine's."""
    sweep = ok_rows(tables[analytic.CSV])
    here = [row for row in sweep if row["case"] == "this machine"]
    if not here:
        raise NothingToDrawError(f"no row in {analytic.CSV} is of this machine")
    figure = style.new_figure(3.4)
    axes = figure.subplots()
    _utilization(axes, sweep)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", fontsize=6.5, ncols=3)
    style.place_note(
        figure,
        join_distinct(here, "device"),
        join_distinct(here, "corpus", CORPORA),
        weights(here),
        f"n = {join_distinct(here, 'n_images')} images",
        "computed from parts, each measured once",
        "source: ResNet-50 training on an A100, samples of 500 KB, workers of 250 MB/s",
        "hollow: on the fitted line",
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
