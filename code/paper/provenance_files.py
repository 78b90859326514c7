"""Where each table was measured: a file beside it, or one for all tables of a folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wallclock.files import pretty_json

#: How the name of the file beside a table ends.
META = ".meta.json"
#: In a folder of a reference run: what would be in those files. See `packed`.
PACKED = "provenance.json"
#: What most tables have in common.
_SHARED = ("machine", "versions")


def read_provenance(folder: Path) -> dict[str, dict[str, Any]]:
    """Name → provenance of the tables in a folder, in the order of their names."""
    by_table: dict[str, dict[str, Any]] = {}
    if (folder / PACKED).is_file():
        plain = _read(folder / PACKED)
        for name, entry in plain["tables"].items():
            by_table[name] = {**plain["environments"][entry.pop("environment")], **entry}
    for path in folder.glob(f"*{META}"):
        by_table[path.name.removesuffix(META) + ".csv"] = _read(path)
    return dict(sorted(by_table.items()))


def packed(by_table: Mapping[str, Mapping[str, Any]]) -> str:
    """The text of a `PACKED` file: the environments, and each table with the number of its own.

    An environment is the machine and the versions of what is installed.
    """
    environments: list[dict[str, Any]] = []
    tables = {}
    for name, about in sorted(by_table.items()):
        environment = {key: about[key] for key in _SHARED if key in about}
        if environment not in environments:
            environments.append(environment)
        own = {key: value for key, value in about.items() if key not in _SHARED}
        tables[name] = {"environment": environments.index(environment), **own}
    return pretty_json({"environments": environments, "tables": tables})


def _read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values
