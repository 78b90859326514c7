"""Figure 1b: where 100,000 originals spend their time, by stage and recipe."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from wallclock.paper.figures import stacked

STEM = "fig-01b-stacked-stage-time-original"
SOURCES: tuple[str, ...] = ("t4-serial-stages-original.csv",)


def draw(tables: Mapping[str, list[dict[str, str]]]) -> Figure:
    """Stacked bars from the serial table of the originals. Raises NothingToDrawError."""
    return stacked.draw(tables[SOURCES[0]], SOURCES[0], "originals at full resolution")
