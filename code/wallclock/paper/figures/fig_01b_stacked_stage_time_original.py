"""Figure 1b: where 100,000 originals spend their time, by stage and recipe."""

from __future__ import annotations

from matplotlib.figure import Figure

from wallclock.paper.figures import stacked
from wallclock.paper.rendering import Tables

STEM = "fig-01b-stacked-stage-time-original"
TITLE = "Where 100,000 originals spend their time, by stage and recipe"
SOURCES: tuple[str, ...] = ("t4-serial-stages-original.csv",)
OPTIONAL: tuple[str, ...] = ()


def draw(tables: Tables) -> Figure:
    """Stacked bars from the serial table of the originals. Raises NothingToDrawError."""
    return stacked.draw(tables[SOURCES[0]], SOURCES[0], "originals at full resolution")
