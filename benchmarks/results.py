"""Where benchmarks write what they measured: a table under data/, with its provenance."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from wallclock import provenance
from wallclock.files import pretty_json, write_text
from wallclock.paper.csvfile import write_table

OUT = provenance.ROOT / "data"


def publish(name: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Print the rows; write data/<name>.csv, and data/<name>.meta.json with the provenance."""
    write_table(OUT / f"{name}.csv", tuple(rows[0]), rows)
    about = {"command": sys.argv[1:], **provenance.identity()}
    write_text(OUT / f"{name}.meta.json", pretty_json(about))
    for row in rows:
        cells = (f"{value:.4g}" if isinstance(value, float) else value for value in row.values())
        print(*cells, sep="  ")
