"""Every figure by name; its experiment's folder has it."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from experiments import contents
from harness.drawing.rendering import (
    NothingToDrawError,
    Output,
    Rendering,
    declared,
    read_measured_sources,
)
from harness.drawing.style import paper_style, save
from wallclock.errors import check_name
from wallclock.files import write_text

FIGURES: Mapping[str, Output[Figure]] = declared(contents.figure_modules())


def render(stem: str, tables_dir: Path, out_dir: Path) -> Rendering:
    """Draw one figure from the tables in `tables_dir` and write it into `out_dir`.

    Raises UserError if no figure is called `stem`, or a table is damaged.
    """
    output = FIGURES[check_name(stem, FIGURES, "figure")]
    try:
        tables = read_measured_sources(tables_dir, output.required, output.optional)
        with paper_style():
            figure = output.make(tables)
    except NothingToDrawError as nothing:
        return Rendering(stem, (), str(nothing))
    paths = save(figure, stem, output.title, out_dir)
    if output.text is not None:
        path = out_dir / f"{stem}{output.text.suffix}"
        write_text(path, output.text.make(tables))
        paths.append(path)
    return Rendering(stem, tuple(paths))
