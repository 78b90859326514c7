"""Figure 21: hours and dollars of 20 million images against the number of nodes, simulated."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from experiments import fleet
from paper.csvfile import Row, distinct, joined, ok_rows
from paper.figures import style
from paper.labels import SHORT_SETS
from paper.rendering import Tables, output

#: What is drawn: instance, arrangement and feeder → colour, marker and line. The marker tells
#: instances apart in grey, the line arrangements.
_SERIES = {
    ("g4dn.xlarge", fleet.LIST, ""): ("#56B4E9", "o", "-"),
    ("g4dn.2xlarge", fleet.LIST, ""): ("#00568C", "s", "-"),
    ("g4dn.4xlarge", fleet.LIST, ""): ("#15233F", "^", "-"),
    ("g6.xlarge", fleet.LIST, ""): ("#2FB48F", "v", "-"),
    ("g6.2xlarge", fleet.LIST, ""): ("#E69F00", "D", "-"),
    ("p5.48xlarge", fleet.LIST, ""): ("#D55E00", "P", "-"),
    ("g4dn.2xlarge", fleet.BUCKET, ""): ("#00568C", "s", ":"),
    ("p5.48xlarge", fleet.LIST, "c7i.4xlarge"): ("#D55E00", "P", "--"),
}
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
    for line, (column, label) in zip(panels, _PANELS.items(), strict=True):
        for axes, image_set in zip(line, sets, strict=True):
            _panel(axes, [row for row in rows if row["image_set"] == image_set], column)
        line[0].set_ylabel(label)
    for top, bottom, image_set in zip(*panels, sets, strict=True):
        top.set_title(SHORT_SETS[image_set])
        bottom.set_xlabel("GPU nodes")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper left", ncols=4)
    fed = [row for row in rows if row["feeder"] and row["nodes"] == "1"]
    beside = ", ".join(f"{row['feeders']} ({SHORT_SETS[row['image_set']]})" for row in fed[-1::-2])
    style.place_note(
        figure,
        f"simulated, not run: {int(rows[0]['n_images']):,} images, "
        f"median of {rows[0]['runs']} runs",
        f"of a core, measured on {joined(rows, 'device')}: decoding, resizing and GETs",
        "cited: prices, bandwidths, S3's limits, the T4's rate; assumed: two vCPUs are a core, "
        "other GPUs' rates, boot, environment, listing, actor start: all in fleet-inputs.csv",
        "bucket: listed and read by boto3 in the order of the keys; else a list of URLs in random "
        "order, read as by http.client",
        f"dashed: {beside} c7i.4xlarge prepare each node's pixels, which is not built",
        "band: 5th to 95th percentile; dollars without S3's GETs",
    )
    return figure


def _panel(axes: Axes, rows: Sequence[Row], column: str) -> None:
    """A line for each series on logarithmic scales; hours with a band."""
    for (instance, arrangement, feeder), (colour, marker, dashes) in _SERIES.items():
        found = {"instance": instance, "arrangement": arrangement, "feeder": feeder}
        line = [row for row in rows if found.items() <= row.items()]
        nodes = [int(row["nodes"]) for row in line]
        name = f"{instance}, {'CPU nodes' if feeder else 'bucket' if dashes == ':' else 'list'}"
        fill = colour if dashes == "-" else "white"
        values = [float(row[column]) for row in line]
        axes.plot(
            nodes, values, dashes, color=colour, marker=marker, ms=3.8, lw=1.1, mfc=fill, label=name
        )
        if column == "hours_p50":
            low, high = ([float(row[f"hours_p{q}"]) for row in line] for q in (5, 95))
            axes.fill_between(nodes, low, high, color=colour, alpha=0.15, lw=0)
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(fleet.NODES, [str(nodes) for nodes in fleet.NODES])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.grid(color="#E4E4E4", lw=0.5)
