"""Stage `serialize`: ids and vectors into a file, in formats that read back exactly.

The study compares them; a job of `wallclock embed` writes Parquet. Each format is a module of this
package that defines `SINK`, a class with the interface of `Sink`; the module's docstring says what
its file holds. `spec.SINKS` lists their names.
"""

import os
from importlib import import_module
from pathlib import Path

from harness import spec
from harness.sinks.sink import ROW_GROUP, Sink, Vectors
from wallclock.errors import check_name

__all__ = ["ROW_GROUP", "SINKS", "Sink", "Vectors", "make", "read", "sync_folder"]

#: Name → the class that writes and reads `vectors.<name>`.
SINKS: dict[str, type[Sink]] = {
    name: import_module(f"{__name__}.{name}").SINK for name in spec.SINKS
}


def make(name: str, folder: Path, dim: int) -> Sink:
    """Open `folder/vectors.<name>` for writing; an unknown name is a `UserError`."""
    return SINKS[check_name(name, SINKS, "sink")](folder / f"vectors.{name}", dim)


def read(path: Path) -> tuple[list[str], Vectors]:
    """Ids and (n, dim) float32 vectors of a closed sink's file, by its name's suffix."""
    return SINKS[path.suffix[1:]].read(path)


def sync_folder(folder: Path) -> None:
    """Wait until every file of a closed sink's folder, and the folder itself, is on the disk."""
    for path in [*sorted(folder.iterdir()), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
