"""The tables of docs/models.md are those that the benchmarks measured."""

import csv
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "models.md"
#: Marker in the page → benchmark's reference and its columns.
TABLES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "families": (
        "families",
        {
            "family": "family",
            "processor": "processor",
            "preprocess": "preprocess",
            "pool": "pool",
            "least cosine": "cosine_min",
            "centered": "centered_median",
        },
    ),
    "geometries": (
        "preprocess",
        {
            "images": "images",
            "preprocess": "preprocess",
            "images/s": "img_per_s",
            "vs squash": "vs_squash",
            "least": "vs_squash_min",
            "greatest": "vs_squash_max",
            "PSNR, worst": "psnr_db_min",
        },
    ),
}


def table_of(name: str) -> str:
    """The table as Markdown; cosines to five decimals, other numbers to four digits."""
    reference, columns = TABLES[name]
    (path,) = (ROOT / "data" / "reference" / reference).glob("*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        rows = [
            [_cell(column, row[column]) for column in columns.values()]
            for row in csv.DictReader(file)
        ]
    lines = [[*columns], ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _cell(column: str, text: str) -> str:
    try:
        number = float(text)
    except ValueError:
        return text
    if column in ("cosine_min", "centered_median"):
        return f"{number:.5f}"
    return f"{number:.0f}" if number >= 1000 else f"{number:.4g}" if number < 2 else f"{number:.1f}"


def rewritten() -> str:
    """The page with the tables as they should be."""
    page = PAGE.read_text(encoding="utf-8")
    for name in TABLES:
        before, marker, behind = page.partition(f"<!-- {name} -->\n")
        assert marker, f"docs/models.md has no <!-- {name} -->"
        lines = behind.splitlines(keepends=True)
        while lines and lines[0].startswith("|"):
            del lines[0]
        page = f"{before}{marker}{table_of(name)}{''.join(lines)}"
    return page


def test_tables_are_as_measured() -> None:
    fix = "run .venv/bin/python -m tests.test_models_page"
    assert rewritten() == PAGE.read_text(encoding="utf-8"), fix


@pytest.mark.parametrize("column", ["cosine_min", "centered_median"])
def test_every_family_holds(column: str) -> None:
    least = {"cosine_min": 0.999, "centered_median": 0.99}[column]
    (path,) = (ROOT / "data" / "reference" / "families").glob("*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        values = {row["family"]: float(row[column]) for row in csv.DictReader(file)}
    assert len(values) >= 16
    assert not {family for family, value in values.items() if value < least}


if __name__ == "__main__":
    PAGE.write_text(rewritten(), encoding="utf-8")
