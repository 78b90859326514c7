"""The run whose rows and numbers the tests read: tests/fixtures/README.md says where it is from."""

import atexit
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from harness import provenance, records
from harness.records import Record
from paper import packing, publish

FIXTURES = provenance.ROOT / "tests" / "fixtures"


@cache
def fixture_runs() -> Path:
    """The records, unpacked once per test process. Read-only."""
    folder = TemporaryDirectory(prefix="wallclock-fixture-")
    atexit.register(folder.cleanup)
    runs = Path(folder.name, "runs")
    packing.unpack(FIXTURES / packing.ARCHIVE, runs)
    return runs


@cache
def fixture_tables() -> Path:
    """A folder of the tables and verdicts that the records make. Read-only."""
    folder = fixture_runs().parent
    publish.write_tables(folder)
    return folder


@cache
def fixture_records(experiment: str) -> list[Record]:
    """An experiment's records, in the order of its index. Read-only."""
    return records.load_experiment(fixture_runs(), experiment)
