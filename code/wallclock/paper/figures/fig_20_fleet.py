"""Figure 20: hours and dollars of 20 million images against the number of nodes, simulated."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from experiments import fleet
from wallclock.paper.csvfile import Row, distinct, ok_rows
from wallclock.paper.figures import style
from wallclock.paper.labels import SHORT_SETS
from wallclock.paper.rendering import Tables, output

#: Instance → colour and marker. Markers tell them apart in grey.
_INSTANCES = {
    "g4dn.xlarge": ("#56B4E9", "o"),
    "g4dn.2xlarge": ("#00568C", "s"),
    "g4dn.4xlarge": ("#15233F", "^"),
    "g6.xlarge": ("#2FB48F", "v"),
    "g6.2xlarge": ("#E69F00", "D"),
    "p5.48xlarge": ("#D55E00", "P"),
}
_LINES = {
    "list of URLs": "-",
    "bucket, in the keys' order": (0, (1, 1.5)),
    "list, CPU nodes prepare": (0, (5, 2)),
}
_PANELS = {"hours_p50": "hours, from the launch of the nodes", "usd_on_demand": "USD, on demand"}


@output(
    "fig-20-fleet",
    "Twenty million images on 1 to 64 cloud nodes: hours and dollars, simulated",
    fleet.CSV,
)
def draw(tables: Tables) -> Figure:
    """A column for each image set; hours above, dollars below."""
    rows = ok_rows(tables[fleet.CSV])
    figure = style.new_figure(6.2)
    sets = distinct(rows, "image_set")
    panels = figure.subplots(len(_PANELS), len(sets), sharex=True, sharey="row", squeeze=False)
    for axes, (column, label) in zip(panels, _PANELS.items(), strict=True):
        for one, image_set in zip(axes, sets, strict=True):
            _panel(one, [row for row in rows if row["image_set"] == image_set], column)
        axes[0].set_ylabel(label)
    for one, image_set in zip(panels[0], sets, strict=True):
        one.set_title(SHORT_SETS[image_set])
    for one in panels[-1]:
        one.set_xlabel("GPU nodes")
    _legend(figure, distinct(rows, "instance"))
    counts, runs = (" / ".join(distinct(rows, name)) for name in ("n_images", "runs"))
    fed = [row for row in rows if row["feeders"] != "0" and row["nodes"] == "1"]
    feeders = ", ".join(
        f"{row['feeders']} {row['feeder']} to a {row['instance']} ({SHORT_SETS[row['image_set']]})"
        for row in fed
    )
    style.place_note(
        figure,
        f"simulated, nothing was run on AWS: {int(counts):,} images, median of {runs} runs",
        f"measured on {' / '.join(distinct(rows, 'device'))}: decoding, resizing and GETs of a core",
        "GPU rates, prices, bandwidths and S3's limits: cited; a vCPU is half a core; boot, "
        "environment, listing and actor start: assumed; each with its source in fleet-inputs.csv",
        f"CPU nodes that prepare pixels: {feeders}; not built" if feeders else "",
        "dollars without S3's GETs; shaded: 5th to 95th percentile of a list of URLs",
    )
    return figure


def _panel(axes: Axes, rows: Sequence[Row], column: str) -> None:
    """A line for each instance and arrangement, on logarithmic scales."""
    cases = {(row["instance"], row["arrangement"], row["feeder"]) for row in rows}
    for name, (colour, marker) in _INSTANCES.items():
        for case in sorted(case for case in cases if case[0] == name):
            found = ("instance", "arrangement", "feeder")
            line = [row for row in rows if tuple(row[part] for part in found) == case]
            nodes = [int(row["nodes"]) for row in line]
            look = dict(zip(_LINES, ("list", "bucket", "fed"), strict=True))
            kind = "fed" if case[2] else case[1]
            dashes = next(_LINES[label] for label, of in look.items() if of == kind)
            values = [float(row[column]) for row in line]
            axes.plot(
                nodes, values, linestyle=dashes, color=colour, marker=marker, ms=3.5, lw=1.1,
                mfc=colour if kind == "list" else "white",
            )  # fmt: skip
            if column == "hours_p50" and kind == "list":
                ends = [[float(row[f"hours_p{q}"]) for row in line] for q in (5, 95)]
                axes.fill_between(nodes, *ends, color=colour, alpha=0.15, lw=0)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(fleet.NODES, fleet.NODES)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(color="#E4E4E4", lw=0.5)


def _legend(figure: Figure, names: Sequence[str]) -> None:
    """Instances by colour and marker, arrangements by line."""
    handles = [
        Line2D([], [], color=colour, marker=marker, ms=4, lw=1.1, label=name)
        for name, (colour, marker) in _INSTANCES.items()
        if name in names
    ]
    handles += [
        Line2D([], [], color=style.INK, linestyle=dashes, lw=1.1, label=label)
        for label, dashes in _LINES.items()
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=5, fontsize=7, columnspacing=1)
