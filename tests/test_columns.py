"""docs/columns.txt has the unit and the meaning of every column, and nothing else."""

from docs.pages import BENCHMARKS, POOLED, REFERENCES, claims_page, definitions, tables
from paper import claims
from paper.claims import CLAIMS
from paper.packing import ARCHIVE

FIX = "edit docs/columns.txt"


def missing() -> list[str]:
    """Columns that nothing defines."""
    return [
        f"{table.name}: {column}"
        for table in tables()
        for column in table.columns
        if not definitions().meaning(table.section, column)
    ]


def test_every_column_has_a_meaning() -> None:
    assert not missing(), FIX


def test_every_definition_is_used() -> None:
    assert not missing()
    read = definitions()
    defined = {("", name) for name in read.shared}
    defined |= {(table, name) for table in read.of for name in read.of[table]}
    assert not defined - read.used, FIX


def test_every_committed_table_is_described() -> None:
    folders = {path.parent for path in REFERENCES.glob("**/*.csv")} - {POOLED.parent}
    without_records = {path for path in folders if not (path / ARCHIVE).is_file()}
    assert {path.name for path in without_records} == {"benchmarks"}
    assert {path.name for path in REFERENCES.glob("*/benchmarks/*.csv")} == BENCHMARKS.keys()


def test_units_are_those_of_the_names() -> None:
    """The unit at the end of a name is the one in its line."""
    units = {"s": "s", "ms": "ms", "us": "µs", "db": "dB", "kb": "kB", "mib": "MiB", "gib": "GiB"}
    read = definitions()
    for names in (read.shared, *read.of.values()):
        for name, meaning in names.items():
            end = name.rpartition("_")[2]
            counts = name.startswith("n_") or name.endswith("_per_s")
            if "_" in name and not counts and end in units:
                assert meaning.unit == units[end], name


def test_the_page_of_claims_has_a_row_of_seven_cells_for_each() -> None:
    rows = claims_page().split("|---|\n")[1].splitlines()
    assert len(rows) == len(claims.load(CLAIMS))
    assert {row.count("|") for row in rows} == {8}
