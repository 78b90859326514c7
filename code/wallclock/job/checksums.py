"""Size and sha256 of each file of a part, in `_checksums/part-00000.json`.

    {"_failures/part-00000.jsonl": {"bytes": 93, "sha256": "…"}, "part-00000.parquet": {…}}

A checksum of Parquet covers the data of one page. A changed bit in a page's header, in the footer,
in a tar or in a file of another sink is seen by these. The file is written with the part, before
its commit.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from wallclock.files import pretty_json, sha256_file


class Recorded(NamedTuple):
    """A file as it was written."""

    bytes: int
    sha256: str


def of_folder(folder: Path) -> bytes:
    """The content of the file of checksums for all files below a folder, by relative name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    recorded = {
        path.relative_to(folder).as_posix(): Recorded(path.stat().st_size, sha256_file(path))
        for path in files
    }
    return pretty_json({name: file._asdict() for name, file in recorded.items()}).encode()


def parse(data: bytes) -> Mapping[str, Recorded]:
    """What `of_folder` wrote. Raises ValueError: it is not that."""
    try:
        values: Mapping[str, Mapping[str, Any]] = json.loads(data)
        return {
            name: Recorded(int(file["bytes"]), str(file["sha256"])) for name, file in values.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("is no file of checksums") from error
