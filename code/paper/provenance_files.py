"""Where each table was measured: a file beside it, or one for all tables of a reference run."""

import json
from pathlib import Path
from typing import Any

#: How the name of the file beside a table ends.
META = ".meta.json"
#: In a reference run: name of each table → what would be in that file.
PACKED = "provenance.json"


def read_provenance(folder: Path) -> dict[str, dict[str, Any]]:
    """Name → provenance of the tables in a folder, in the order of their names."""
    packed = folder / PACKED
    by_table: dict[str, dict[str, Any]] = _read(packed) if packed.is_file() else {}
    for path in folder.glob(f"*{META}"):
        by_table[path.name.removesuffix(META) + ".csv"] = _read(path)
    return dict(sorted(by_table.items()))


def _read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values
