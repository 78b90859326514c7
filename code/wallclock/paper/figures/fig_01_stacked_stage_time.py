"""Figure 1: where 100,000 small images spend their time, by stage and recipe."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from wallclock.paper.figures import stacked

STEM = "fig-01-stacked-stage-time"
SOURCES: tuple[str, ...] = ("t4-serial-stages.csv",)


def draw(tables: Mapping[str, list[dict[str, str]]]) -> Figure:
    """Stacked bars from the serial table of the small images. Raises NothingToDrawError."""
    return stacked.draw(tables[SOURCES[0]], SOURCES[0], "images of 256 px")
