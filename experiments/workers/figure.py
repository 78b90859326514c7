"""Figure 4: throughput against the number of loader workers."""

from matplotlib.figure import Figure

from experiments.workers import cells as workers
from harness.drawing import sweep
from harness.drawing.format import percent
from harness.drawing.rendering import Tables, output


@output(
    "fig-04-workers-sweep",
    "Throughput against the number of loader workers, and the main process's wait for them",
    workers.CSV,
)
def draw(tables: Tables) -> Figure:
    """Images per second over workers; below, the share of wall time that the main process waits.

    The first decoder's curve is the paper's; another's is beside it. The share tells on which side
    of the knee a point lies: what waits is not the bottleneck.
    """
    rows = tables[workers.CSV]
    first = rows[0]["decoder"] if rows else ""
    ours = [row for row in rows if row["decoder"] == first]
    beside = [row for row in rows if row["decoder"] != first]
    waits = sweep.points_of(ours, "wait_share", "workers")
    height, ratios = (3.9, (5, 2)) if waits else (2.9, (1,))
    figure, panels = sweep.draw_sweep(ours, workers.CSV, "workers", height, ratios, beside)
    panels[-1].set_xlabel("loader workers (0: the main process loads)")
    if waits:
        panels[1].set_ylim(0, 1.18)
        panels[1].set_yticks((0, 0.5, 1), ("0", "50", "100"))
        panels[1].set_ylabel("main process\nwaiting, %", color=sweep.SECOND)
        sweep.draw_line(panels[1], waits, sweep.SECOND, **sweep.SECOND_LINE)
        # A high point's number would leave the panel.
        low = [(count, share) for count, share in waits if share < 0.7]
        high = [(count, share) for count, share in waits if share >= 0.7]
        sweep.name_points(panels[1], low, sweep.SECOND, _whole_percent)
        sweep.name_points(panels[1], high, sweep.SECOND, _whole_percent, below=True)
        if others := sweep.points_of(beside, "wait_share", "workers"):
            sweep.draw_line(panels[1], others, sweep.BESIDE, **sweep.BESIDE_LINE)
    return figure


def _whole_percent(share: float) -> str:
    return percent(share, 0)
