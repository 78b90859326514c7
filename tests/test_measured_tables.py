"""The tables of the documents are those that the benchmarks measured."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from paper.__main__ import main as footnotes

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Table:
    """A table of a document: its page, the benchmark's reference, column → column of the CSV."""

    page: str
    reference: str
    columns: Mapping[str, str]


#: Marker in the page → its table.
TABLES: Mapping[str, Table] = {
    "families": Table(
        "models.md",
        "families/amd-epyc-2-cores.csv",
        {
            "family": "family",
            "processor": "processor",
            "preprocess": "preprocess",
            "pool": "pool",
            "least cosine": "cosine_min",
            "centered": "centered_median",
        },
    ),
    "geometries": Table(
        "models.md",
        "preprocess/amd-epyc-2-cores.csv",
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
    "traced": Table(
        "trace.md",
        "trace/amd-epyc-2-cores.csv",
        {
            "program": "program",
            "images": "n_images",
            "time added per image": "overhead",
            "least": "overhead_min",
            "greatest": "overhead_max",
            "start, s": "added_start_s",
            "share, greatest difference": "greatest_difference",
            "bound by": "bound",
            "named": "is_named",
        },
    ),
    "tried": Table(
        "trace.md",
        "tried/amd-epyc-2-cores.csv",
        {
            "program": "program",
            "images": "images",
            "predicted": "predicted_gain",
            "from": "predicted_low",
            "to": "predicted_high",
            "by `--try`": "try_gain",
            "measured": "gain",
            "least": "gain_min",
            "greatest": "gain_max",
            "inside": "inside",
        },
    ),
}


def table_of(name: str) -> str:
    """The table as Markdown; cosines to five decimals, other numbers to four digits."""
    table = TABLES[name]
    columns = table.columns
    with (ROOT / "data" / "reference" / table.reference).open(encoding="utf-8", newline="") as file:
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
    if number >= 1000 or number.is_integer():
        return f"{number:.0f}"
    return f"{number:.4g}" if number < 2 else f"{number:.1f}"


PAGES = sorted({table.page for table in TABLES.values()})


def rewritten(page_name: str) -> str:
    """A page of docs/ with its tables as they should be."""
    page = (ROOT / "docs" / page_name).read_text(encoding="utf-8")
    for name in (name for name, table in TABLES.items() if table.page == page_name):
        before, marker, behind = page.partition(f"<!-- {name} -->\n")
        assert marker, f"docs/{page_name} has no <!-- {name} -->"
        lines = behind.splitlines(keepends=True)
        while lines and lines[0].startswith("|"):
            del lines[0]
        page = f"{before}{marker}{table_of(name)}{''.join(lines)}"
    return page


@pytest.mark.parametrize("name", PAGES)
def test_tables_are_as_measured(name: str) -> None:
    fix = "run .venv/bin/python -m tests.test_measured_tables"
    assert rewritten(name) == (ROOT / "docs" / name).read_text(encoding="utf-8"), fix


@pytest.mark.parametrize("column", ["cosine_min", "centered_median"])
def test_every_family_holds(column: str) -> None:
    least = {"cosine_min": 0.999, "centered_median": 0.99}[column]
    (path,) = (ROOT / "data" / "reference" / "families").glob("*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        values = {row["family"]: float(row[column]) for row in csv.DictReader(file)}
    assert len(values) >= 16
    assert not {family for family, value in values.items() if value < least}


if __name__ == "__main__":
    for changed in PAGES:
        (ROOT / "docs" / changed).write_text(rewritten(changed), encoding="utf-8")
    footnotes(["footnotes", "--write"])
