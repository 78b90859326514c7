"""Figure 21: hours and dollars of 20 million images against the number of nodes, simulated."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from experiments import fleet
from paper.csvfile import Row, distinct, join_distinct, ok_rows
from paper.figures import style
from paper.labels import SHORT_SETS
from paper.rendering import Tables, output


@dataclass(frozen=True)
class _Series:
    """What one line is of, and its look: markers tell instances apart in grey."""

    instance: str
    colour: str
    marker: str
    arrangement: str = fleet.LIST
    feeder: str = ""

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
    _Series("g4dn.4xlarge", "#15233F", "^"),
    _Series("g6.xlarge", "#2FB48F", "v"),
    _Series("g6.2xlarge", "#E69F00", "D"),
    _Series("p5.48xlarge", "#D55E00", "P"),
    _Series("g4dn.2xlarge", "#00568C", "s", arrangement=fleet.BUCKET),
    _Series("p5.48xlarge", "#D55E00", "P", feeder="c7i.4xlarge"),
)
_PANELS = {"hours_p50": "hours from the launch of the nodes", "usd_on_demand": "USD, on demand"}


@output(
    "fig-21-fleet",
    "Twenty million images on 1 to 64 cloud nodes: hours and dollars, simulated",
    fleet.CSV,
)
def draw(tables: Tables) -> Figure:
    """A column for each image set; hours above, dollars below."""
    rows = ok_rows(tables[fleet.CSV])
    figure = style.new_figure(5.9)
    sets = distinct(rows, "image_set")
    panels = figure.subplots(len(_PANELS), len(sets), sharex=True, sharey="row", squeeze=False)
    for panel_row, (column, label) in zip(panels, _PANELS.items(), strict=True):
        for axes, image_set in zip(panel_row, sets, strict=True):
            _panel(axes, [row for row in rows if row["image_set"] == image_set], column)
        panel_row[0].set_ylabel(label)
    for top, bottom, image_set in zip(*panels, sets, strict=True):
        top.set_title(SHORT_SETS[image_set])
        bottom.set_xlabel("GPU nodes")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=4)
    style.place_note(
        figure,
        f"simulated, not run: {int(rows[0]['n_images']):,} images, "
        f"median of {rows[0]['runs']} runs",
        f"of a core, measured on {join_distinct(rows, 'device')}: decoding, resizing and GETs",
        "cited: prices, bandwidths, S3's limits, the T4's rate; assumed: two vCPUs are a core, "
        "other GPUs' rates, boot, environment, listing, actor start: all in fleet-inputs.csv",
        "bucket: listed and read by boto3 in the order of the keys; else a list of URLs in random "
        "order, read as by http.client",
        f"dashed: {_feeders(rows)} c7i.4xlarge prepare each node's pixels, which is not built",
        "band: 5th to 95th percentile; dollars without S3's GETs",
    )
    return figure


def _feeders(rows: Sequence[Row]) -> str:
    """How many CPU nodes prepare the pixels of one GPU node, of each image set."""
    (fed,) = (series for series in _SERIES if series.feeder)
    single = [row for row in rows if row["nodes"] == "1" and _is_of(row, fed)]
    counts = [f"{row['feeders']} ({SHORT_SETS[row['image_set']]})" for row in reversed(single)]
    return ", ".join(counts)


def _panel(axes: Axes, rows: Sequence[Row], column: str) -> None:
    """A line for each series on logarithmic scales; hours with a band."""
    for series in _SERIES:
        points = [row for row in rows if _is_of(row, series)]
        nodes = [int(row["nodes"]) for row in points]
        values = [float(row[column]) for row in points]
        axes.plot(
            nodes, values, series.dashes, color=series.colour, marker=series.marker, ms=3.8, lw=1.1,
            mfc=series.colour if series.dashes == "-" else "white", label=series.label,
        )  # fmt: skip
        if column == "hours_p50":
            low = [float(row["hours_p5"]) for row in points]
            high = [float(row["hours_p95"]) for row in points]
            axes.fill_between(nodes, low, high, color=series.colour, alpha=0.15, lw=0)
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(fleet.NODES, [str(nodes) for nodes in fleet.NODES])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.grid(color="#E4E4E4", lw=0.5)


def _is_of(row: Row, series: _Series) -> bool:
    place = (row["instance"], row["arrangement"], row["feeder"])
    return place == (series.instance, series.arrangement, series.feeder)
