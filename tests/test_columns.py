"""The unit, the kind and the meaning of every column are declared, and nothing else."""

from docs.pages import BENCHMARKS, COMMITTED, REFERENCES, claims_page, tables
from harness.table import declaration, declarations
from paper import claims
from paper.claims import CLAIMS
from paper.packing import ARCHIVE

FIX = "edit MEANINGS in the experiment's cells.py, or code/harness/columns.txt"


def test_every_column_is_declared() -> None:
    missing = [
        f"{table.name}: {name}"
        for table in tables()
        for name in table.columns
        if not declaration(table.section, name)
    ]
    assert not missing, FIX


def test_every_declaration_is_used() -> None:
    used = {declaration(table.section, name) for table in tables() for name in table.columns}
    declared = {(table, name) for table, lines in declarations().items() for name in lines}
    assert not declared - used, FIX


def test_every_committed_table_is_described() -> None:
    alone = {path.parent for path in COMMITTED}
    folders = {path.parent for path in REFERENCES.glob("**/*.csv")} - alone
    without_records = {path for path in folders if not (path / ARCHIVE).is_file()}
    assert {path.name for path in without_records} == {"benchmarks"}
    assert {path.name for path in REFERENCES.glob("*/benchmarks/*.csv")} == BENCHMARKS.keys()


def test_units_are_those_of_the_names() -> None:
    """The unit at the end of a name is the one in its line."""
    units = {"s": "s", "ms": "ms", "us": "µs", "db": "dB", "kb": "kB", "mib": "MiB", "gib": "GiB"}
    for lines in declarations().values():
        for name, declared in lines.items():
            end = name.rpartition("_")[2]
            counts = name.startswith("n_") or name.endswith("_per_s")
            if "_" in name and not counts and end in units:
                assert declared.unit == units[end], name


def test_the_page_of_claims_has_a_row_of_seven_cells_for_each() -> None:
    rows = claims_page().split("|---|\n")[1].splitlines()
    assert len(rows) == len(claims.load(CLAIMS))
    assert {row.count("|") for row in rows} == {8}
