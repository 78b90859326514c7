"""Figure 21: dollars against hours of 20 million images on 1 to 64 nodes, simulated."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from experiments import fleet
from paper.csvfile import Row, distinct, join_distinct, ok_rows
from paper.figures import style
from paper.labels import SETS, SHORT_SETS
from paper.rendering import Tables, output


@dataclass(frozen=True)
class _Series:
    """What one line is of, and its look: markers tell instances apart in grey."""

    instance: str
    colour: str
    marker: str
    arrangement: str = fleet.LIST
    feeder: str = ""
    #: Whether its ends name their numbers of nodes; those of others lie close to these.
    has_numbers: bool = False

    @property
    def dashes(self) -> str:
        """The line tells arrangements and feeders apart."""
        if self.feeder:
            return "--"
        return "-" if self.arrangement == fleet.LIST else ":"

    @property
    def label(self) -> str:
        """Its name in the legend."""
        if self.feeder:
            return f"{self.instance}, CPU nodes"
        return f"{self.instance}, {'list' if self.arrangement == fleet.LIST else 'bucket'}"


_SERIES = (
    _Series("g4dn.xlarge", "#56B4E9", "o"),
    _Series("g4dn.2xlarge", "#00568C", "s"),
    _Series("g4dn.4xlarge", "#15233F", "^", has_numbers=True),
    _Series("g6.xlarge", "#2FB48F", "v"),
    _Series("g6.2xlarge", "#E69F00", "D"),
    _Series("p5.48xlarge", "#D55E00", "P", has_numbers=True),
    _Series("g4dn.2xlarge", "#00568C", "s", arrangement=fleet.BUCKET, has_numbers=True),
    _Series("p5.48xlarge", "#D55E00", "P", feeder="c7i.4xlarge"),
)
#: Where a curve names its number of nodes: at its ends.
_NAMED = (str(min(fleet.NODES)), str(max(fleet.NODES)))


@output(
    "fig-21-fleet",
    "Twenty million images on 1 to 64 cloud nodes: dollars against hours, simulated",
    fleet.CSV,
)
def draw(tables: Tables) -> Figure:
    """A panel for each image set, a curve for each instance: a point per number of nodes."""
    rows = ok_rows(tables[fleet.CSV])
    figure = style.new_figure(4.6)
    sets = distinct(rows, "image_set")
    panels = figure.subplots(1, len(sets), sharex=True, sharey=True, squeeze=False)[0]
    for axes, image_set in zip(panels, sets, strict=True):
        _panel(axes, [row for row in rows if row["image_set"] == image_set])
        axes.set_title(SETS[image_set].capitalize())
    panels[0].set_ylabel("USD, on demand")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=4)
    style.place_note(
        figure,
        f"simulated, not run: {int(rows[0]['n_images']):,} images, "
        f"median of {rows[0]['runs']} runs",
        f"measured: a core of {join_distinct(rows, 'device')}; cited: prices, bandwidths, S3's "
        "limits, the T4's rate; assumed: all else in fleet-inputs.csv",
        "bucket: read in the order of the keys; else a list of URLs in random order",
        f"dashed: {_feeders(rows)} c7i.4xlarge per GPU node prepare pixels, which is not built",
        "numbers: GPU nodes; bars: 5th to 95th percentile; USD without S3's GETs",
    )
    return figure


def _feeders(rows: Sequence[Row]) -> str:
    """How many CPU nodes prepare the pixels of one GPU node, of each image set."""
    (fed,) = (series for series in _SERIES if series.feeder)
    single = [row for row in rows if row["nodes"] == "1" and _is_of(row, fed)]
    counts = [f"{row['feeders']} ({SHORT_SETS[row['image_set']]})" for row in reversed(single)]
    return ", ".join(counts)


def _panel(axes: Axes, rows: Sequence[Row]) -> None:
    """A curve for each series on logarithmic scales; down and to the left is better."""
    for series in _SERIES:
        points = [row for row in rows if _is_of(row, series)]
        hours = [float(row["hours_p50"]) for row in points]
        dollars = [float(row["usd_on_demand"]) for row in points]
        axes.plot(
            hours, dollars, series.dashes, color=series.colour, marker=series.marker, ms=3.8,
            lw=1.1, mfc=series.colour if series.dashes == "-" else "white", label=series.label,
        )  # fmt: skip
        for row, x, y in zip(points, hours, dollars, strict=True):
            ends = [float(row["hours_p5"]), float(row["hours_p95"])]
            axes.plot(ends, [y, y], color=series.colour, lw=0.7, alpha=0.7)
            if series.has_numbers and row["nodes"] in _NAMED:
                axes.annotate(
                    row["nodes"], (x, y), (0, 5), textcoords="offset points", ha="center",
                    fontsize=6, color=series.colour,
                )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="hours from the launch of the nodes")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:,g}")
        axis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    axes.grid(color="#E4E4E4", lw=0.5)


def _is_of(row: Row, series: _Series) -> bool:
    place = (row["instance"], row["arrangement"], row["feeder"])
    return place == (series.instance, series.arrangement, series.feeder)
