"""Figure 11: a point a loader, a panel a set of images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from tests.paper import frontier
from tests.paper.made_up import CPU, Rows
from wallclock.paper.figures import FIGURES
from wallclock.paper.figures.style import styled
from wallclock.paper.rendering import NothingToDrawError, measured_sources

Save = Callable[[Path, str, Rows], Path]


def drawn(folder: Path) -> Figure:
    module = FIGURES["fig-11-frontier"]
    with styled():
        return module.draw(measured_sources(folder, module.SOURCES, module.OPTIONAL))


def words(figure: Figure) -> str:
    texts = [item.get_text() for item in figure.findobj(Text) if isinstance(item, Text)]
    return "\n".join(texts).replace("\u00a0", " ").replace("\n", " ")


def test_a_panel_each_with_every_loader_at_its_place(tmp_path: Path, save_table: Save) -> None:
    save_table(tmp_path, "frontier.csv", frontier.rows(CPU))
    figure = drawn(tmp_path)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Images of 256 px", "Originals"]
    (ours,) = [line for line in figure.axes[1].lines if line.get_marker() == "*"]
    at = [float(value) for value in (*ours.get_xdata(), *ours.get_ydata())]  # type: ignore[misc]
    assert at == pytest.approx([43.4, 470 / 1.6], 1e-4)
    assert "SPDL: unavailable (spdl is not installed)" in words(figure)


def test_a_folders_processes_are_apart(tmp_path: Path, save_table: Save) -> None:
    rows = [
        row | {"corpus": "folder", "subset": subset}
        for subset in ("all", "baseline", "progressive")
        for row in frontier.rows(CPU)
        if row["image_set"] == "original"
    ]
    save_table(tmp_path, "frontier.csv", rows)
    titles = [axes.get_title(loc="left") for axes in drawn(tmp_path).axes[:3]]
    assert titles == [
        "A folder's photos",
        "A folder's photos, baseline JPEG",
        "A folder's photos, progressive JPEG",
    ]


def test_rates_without_pixels_draw_nothing(tmp_path: Path, save_table: Save) -> None:
    save_table(tmp_path, "frontier.csv", [row | {"psnr_db": None} for row in frontier.rows(CPU)])
    with pytest.raises(NothingToDrawError, match="both a rate and a PSNR"):
        drawn(tmp_path)
