"""docs/gallery.md shows every figure and page of the reference runs, with the tables behind it.

`.venv/bin/python -m tests.test_gallery` writes it anew.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from paper.figures import FIGURES
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "gallery.md"
REFERENCES = ROOT / "data" / "reference"
#: The run whose figures come first; the others add what they have beside it.
MAIN = "amd-epyc-2-cores"
#: Pages that a reference run has: name → what it is.
PAGES = {
    "what-limits-my-job.html": "What limits my job? A page that answers while you type",
    "diagnosis.html": "A diagnosis of 277 photos, with its proof",
}
INTRODUCTION = """\
# Figures

All figures of the committed reference runs, with the tables that they show. `make figures` draws
those of your runs, as SVG, PDF and PNG. The captions name machine, images, weights and repeats.

"""


def link(path: Path) -> str:
    """From docs/ to a file."""
    return Path(os.path.relpath(path, PAGE.parent)).as_posix()


def runs() -> list[Path]:
    folders = sorted(path.parent for path in REFERENCES.glob("*/figures"))
    return sorted(folders, key=lambda folder: folder.name != MAIN)


def figures() -> Iterator[Path]:
    """Every SVG, in the order of the figures; a number that two runs have comes twice."""
    paths = [path for folder in runs() for path in sorted((folder / "figures").glob("*.svg"))]
    order = list(FIGURES)
    yield from sorted(paths, key=lambda path: order.index(path.stem))


def page() -> str:
    """docs/gallery.md."""
    parts = [INTRODUCTION]
    for folder in runs():
        for name, meaning in PAGES.items():
            if (folder / "figures" / name).is_file():
                parts.append(f"- [{meaning}]({link(folder / 'figures' / name)})\n")
    for path in figures():
        figure, folder = FIGURES[path.stem], path.parent.parent
        of_run = "" if folder.name == MAIN else f" ({folder.name})"
        tables = ", ".join(
            f"[{csv}]({link(folder / csv)})" for csv in figure.csvs if (folder / csv).is_file()
        )
        parts.append(f"\n## {figure.title}{of_run}\n\n![{figure.title}]({link(path)})\n")
        parts.append(f"\n`{path.stem}`, from {tables}.\n")
    return "".join(parts)


def test_it_shows_what_is_committed() -> None:
    fix = "run .venv/bin/python -m tests.test_gallery"
    assert PAGE.read_text(encoding="utf-8") == page(), f"an old gallery: {fix}"


def test_every_figure_is_in_it() -> None:
    """And both pages of a run; the report is made by `make docs`."""
    text = page()
    assert len(list(figures())) >= len(FIGURES) - 1
    for path in (*REFERENCES.glob("*/figures/*.svg"), *REFERENCES.glob("*/figures/*.html")):
        assert text.count(link(path)) == 1, path.name


def test_a_drawing_is_text_with_a_title() -> None:
    """It can be searched, and read aloud."""
    for path in figures():
        drawing = path.read_text(encoding="utf-8")
        assert f"<title>{FIGURES[path.stem].title}</title>" in drawing.replace("&amp;", "&")
        assert drawing.count("<text") > 3, path.name


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
