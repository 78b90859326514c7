"""Where benchmarks leave what they measured: a table under data/, and beside it what it was measured on."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from wallclock import provenance
from wallclock.files import pretty_json, write_text
from wallclock.paper.csvfile import write_table

OUT = provenance.ROOT / "data"


def publish(name: str, columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
    """Write data/<name>.csv, and data/<name>.meta.json: arguments, machine, versions, digest of the code."""
    write_table(OUT / f"{name}.csv", columns, rows)
    write_text(
        OUT / f"{name}.meta.json", pretty_json({"command": sys.argv[1:], **provenance.identity()})
    )
