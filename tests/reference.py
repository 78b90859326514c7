"""The committed reference run, as records."""

from __future__ import annotations

from functools import cache

from tests.conftest import ROOT
from wallclock import records
from wallclock.records import Record

RUNS = ROOT / "data" / "reference" / "amd-epyc-2-cores" / "runs"


@cache
def reference_records(experiment: str) -> list[Record]:
    """Every record of an experiment in the reference run, in the order of its table."""
    return records.load_experiment(RUNS, experiment)
