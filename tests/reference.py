"""The committed reference run: its folder and its records, unpacked once per test process."""

import atexit
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from wallclock import provenance, records
from wallclock.records import Record

REFERENCE = provenance.ROOT / "data" / "reference" / "amd-epyc-2-cores"


@cache
def reference_runs() -> Path:
    """The reference's records, unpacked to a temporary folder. Read-only."""
    folder = TemporaryDirectory(prefix="wallclock-reference-")
    atexit.register(folder.cleanup)
    records.unpack(REFERENCE / records.ARCHIVE, Path(folder.name))
    return Path(folder.name)


@cache
def reference_records(experiment: str) -> list[Record]:
    """An experiment's records from the reference run, in the order of its index. Read-only."""
    return records.load_experiment(reference_runs(), experiment)
