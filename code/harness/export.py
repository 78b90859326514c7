"""Live metrics of the cell that this process measures, while `--export` is set."""

from harness.spec import Cell
from wallclock.metrics import Exporter, serve

#: The exporter of this process's cell, if `--export` was set.
current: Exporter | None = None


def start(port: int, cell: Cell) -> None:
    """Export metrics of this process's cell from now on, until the process ends."""
    global current
    info = {"experiment": cell.experiment, "cell": cell.label, "repeat": str(cell.repeat)}
    current = serve(port, None, info)
