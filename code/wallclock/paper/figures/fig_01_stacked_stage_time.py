"""Figure 1: where 100,000 small images spend their time, by stage and recipe."""

from __future__ import annotations

from matplotlib.figure import Figure

from wallclock.paper.figures import stacked
from wallclock.paper.rendering import Tables

STEM = "fig-01-stacked-stage-time"
TITLE = "Where 100,000 small images spend their time, by stage and recipe"
SOURCES: tuple[str, ...] = ("t4-serial-stages.csv",)
OPTIONAL: tuple[str, ...] = ("t4-baseline-stages.csv",)


def draw(tables: Tables) -> Figure:
    """Stacked bars: the serial recipes, and the baseline with its workers. Raises NothingToDrawError."""
    beside = [
        row for name in OPTIONAL for row in tables.get(name, []) if row["image_set"] == "small_256"
    ]
    return stacked.draw(tables[SOURCES[0]], SOURCES[0], "images of 256 px", beside)
