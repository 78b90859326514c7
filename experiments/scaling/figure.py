"""Figure 18: the job's time by its images, with the line that it follows."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from experiments.scaling import cells as scaling
from harness.drawing import style
from harness.drawing.format import digits
from harness.drawing.rendering import NothingToDrawError, Tables, output
from harness.table import Row, cell_of, ok_rows

#: Fewer jobs than this do not show how the time grows.
_LEAST_JOBS = 3


@output("fig-18-scaling", "wallclock embed: time against images", scaling.CSV)
def draw(tables: Tables) -> Figure:
    """The runs on logarithmic scales, with their line."""
    jobs = ok_rows(tables[scaling.CSV])
    longest = max(jobs, key=_n_images)
    jobs = [row for row in jobs if row["image_set"] == longest["image_set"]]
    if len(jobs) < _LEAST_JOBS:
        raise NothingToDrawError(f"fewer than {_LEAST_JOBS} jobs in {scaling.CSV}: no line")
    figure = style.new_figure(3.4)
    _runs(figure.subplots(), jobs, longest)
    remarks = [longest["settings"], "mock model at 0 ms", _files(longest)]
    if longest["vs_line"]:
        error = 100 * longest["vs_line"]
        than = "longer" if error > 0 else "shorter"
        remarks.append(
            f"the longest: {abs(error):.1f} % {than} than extrapolated from those up to 100,000"
        )
    if longest["memory_mib_per_100k"]:
        growth = digits(longest["memory_mib_per_100k"])
        remarks.append(f"memory grows by {growth} MiB per 100,000 images of a job")
    style.place_caption(figure, [longest], *remarks)
    return figure


def _files(row: Row) -> str:
    """What the job read."""
    if row["files"] == "distinct":
        pictures = f"each file of other bytes, {row['n_unique']} pictures"
        return f"{pictures}, deduplicate={cell_of(row['deduplicate'])}"
    return f"{row['n_unique']} files, in turn"


def _n_images(row: Row) -> int:
    return int(row["n_images"])


def _runs(axes: Axes, jobs: Sequence[Row], longest: Row) -> None:
    """The runs as points, with the line through them and its equation."""
    counts = [row["n_images"] for row in jobs]
    walls = [row["wall_s"] for row in jobs]
    if longest["fit_r2"]:
        startup, slope = longest["fit_startup_s"], longest["fit_ms_per_image"]
        along = np.geomspace(min(counts), max(counts))
        label = f"{startup:.1f} s + {slope:.3g} ms per image, R² = {longest['fit_r2']:.5f}"
        axes.plot(along, startup + slope / 1e3 * along, color=style.GREY, lw=1, label=label)
        axes.legend(loc="upper left", fontsize=7)
    axes.plot(counts, walls, "o", ms=5, mfc=style.BAR, mec=style.INK, mew=0.7)
    axes.set(xscale="log", yscale="log", xlabel="images", ylabel="seconds", title="Wall time")
    for axis, values in ((axes.xaxis, counts), (axes.yaxis, walls)):
        steps = (1,) if max(values) >= 100 * min(values) else (1, 2, 5)
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_major_formatter("{x:,.0f}" if min(values) >= 1 else "{x:,g}")
        axis.set_minor_formatter(NullFormatter())
    axes.grid(color="#E4E4E4", linewidth=0.5)
    axes.margins(x=0.1, y=0.15)
