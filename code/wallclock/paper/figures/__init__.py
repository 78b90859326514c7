"""Every figure of the paper, in its order; each is a module that names its tables and draws them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from matplotlib.figure import Figure

from wallclock.errors import check_name
from wallclock.files import write_text
from wallclock.paper.figures import (
    fig_01_stacked_stage_time,
    fig_01b_stacked_stage_time_original,
    fig_02_batch_sweep,
    fig_03_decoder_comparison,
    fig_04_workers_sweep,
    fig_05_onnx_vs_pytorch,
    fig_06_cpu_gpu_timeline,
    fig_07_pipeline,
    fig_10_throughput_summary,
    fig_11_frontier,
    fig_12_predicted_vs_measured,
)
from wallclock.paper.figures.style import save, styled
from wallclock.paper.rendering import NothingToDrawError, Rendering, Tables, measured_sources


class FigureModule(Protocol):
    """What a figure's module offers."""

    #: Name of the files it becomes, without suffix.
    STEM: str
    #: What it shows, in a line.
    TITLE: str
    #: Names of the tables without which there is no figure.
    SOURCES: tuple[str, ...]
    #: Names of those that it shows where they hold a measurement. A figure has one or the other.
    OPTIONAL: tuple[str, ...]

    def draw(self, tables: Tables) -> Figure:
        """Draw from tables by name. Raises NothingToDrawError."""


_MODULES: tuple[FigureModule, ...] = (
    fig_01_stacked_stage_time,
    fig_01b_stacked_stage_time_original,
    fig_02_batch_sweep,
    fig_03_decoder_comparison,
    fig_04_workers_sweep,
    fig_05_onnx_vs_pytorch,
    fig_06_cpu_gpu_timeline,
    fig_07_pipeline,
    fig_10_throughput_summary,
    fig_11_frontier,
    fig_12_predicted_vs_measured,
)
FIGURES: Mapping[str, FigureModule] = {module.STEM: module for module in _MODULES}
#: What a figure is as text, beside the drawing: suffix and source.
TEXTS: Mapping[str, tuple[str, Callable[[Tables], str]]] = {
    fig_07_pipeline.STEM: (".mmd", fig_07_pipeline.mermaid)
}


def render_all(tables_dir: Path, out_dir: Path) -> list[Rendering]:
    """Draw every figure whose tables are there, in order; say of the others why not."""
    return [render(stem, tables_dir, out_dir) for stem in FIGURES]


def render(stem: str, tables_dir: Path, out_dir: Path) -> Rendering:
    """Draw one figure from the tables in `tables_dir` and write it into `out_dir`.

    Raises:
        UserError: no figure is called `stem`, or a table is damaged.
    """
    module = FIGURES[check_name(stem, FIGURES, "figure")]
    try:
        tables = measured_sources(tables_dir, module.SOURCES, module.OPTIONAL)
        with styled():
            figure = module.draw(tables)
    except NothingToDrawError as nothing:
        return Rendering(stem, (), str(nothing))
    paths = save(figure, stem, out_dir)
    if stem in TEXTS:
        suffix, source = TEXTS[stem]
        paths.append(out_dir / f"{stem}{suffix}")
        write_text(paths[-1], source(tables))
    return Rendering(stem, tuple(paths))
