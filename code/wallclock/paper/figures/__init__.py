"""Every figure of the paper, in its order; each is a module that names its tables and draws them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from matplotlib.figure import Figure

from wallclock.errors import check_name
from wallclock.paper.csvfile import ok_rows, read_table
from wallclock.paper.figures import (
    fig_01_stacked_stage_time,
    fig_01b_stacked_stage_time_original,
    fig_03_decoder_comparison,
)
from wallclock.paper.figures.style import NothingToDrawError, save, styled


class FigureModule(Protocol):
    """What a figure's module offers."""

    #: Name of the files it becomes, without suffix.
    STEM: str
    #: Names of the tables it reads.
    SOURCES: tuple[str, ...]

    def draw(self, tables: Mapping[str, list[dict[str, str]]]) -> Figure:
        """Draw from tables by name. Raises NothingToDrawError."""


@dataclass(frozen=True)
class Rendering:
    """What became of one figure: the files written, or why there are none."""

    stem: str
    paths: tuple[Path, ...]
    skipped: str = ""


_MODULES: tuple[FigureModule, ...] = (
    fig_01_stacked_stage_time,
    fig_01b_stacked_stage_time_original,
    fig_03_decoder_comparison,
)
#: What a figure is saved as.
SUFFIXES = (".png", ".svg", ".pdf")
FIGURES: Mapping[str, FigureModule] = {module.STEM: module for module in _MODULES}


def render_all(tables_dir: Path, out_dir: Path) -> list[Rendering]:
    """Draw every figure whose tables are there, in order; say of the others why not."""
    return [render(stem, tables_dir, out_dir) for stem in FIGURES]


def render(stem: str, tables_dir: Path, out_dir: Path) -> Rendering:
    """Draw one figure from the tables in `tables_dir` and write it into `out_dir`.

    Raises:
        UserError: no figure is called `stem`, or a table is damaged.
    """
    module = FIGURES[check_name(stem, FIGURES, "figure")]
    missing = [name for name in module.SOURCES if not (tables_dir / name).is_file()]
    if missing:
        return Rendering(stem, (), f"no {', '.join(missing)} in {tables_dir}")
    tables = {name: read_table(tables_dir / name) for name in module.SOURCES}
    empty = [name for name, rows in tables.items() if not ok_rows(rows)]
    if empty:
        return Rendering(stem, (), f"no row with status ok in {', '.join(empty)}")
    try:
        with styled():
            figure = module.draw(tables)
    except NothingToDrawError as nothing:
        return Rendering(stem, (), str(nothing))
    return Rendering(stem, tuple(save(figure, stem, out_dir)))
