"""What has arrived so far, one line an image, so that a killed run continues where it was.

Lines are appended after the file has its final name and carry a checksum: the last one may be torn,
and is then as if it had not been written.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path

from wallclock.corpus.manifest import Item


class Journal:
    """Appends to one file; use as a context manager."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by __exit__
        if self._file.tell():
            # Behind a torn line a new one begins.
            self._file.write(b"\n")

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, items: Sequence[Item]) -> None:
        """Write a line for each image. A full disk raises `OSError`."""
        data = b"".join(_line(item) for item in items)
        while data:
            data = data[self._file.write(data) :]


def read(path: Path) -> dict[str, Item]:
    """The images that a journal lists, by path, the last line of each; empty if there is none."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    found = [_parse(line) for line in lines]
    return {item.path: item for item in found if item is not None}


def remove(path: Path) -> None:
    """Forget a journal whose images are in a manifest now."""
    path.unlink(missing_ok=True)


def _line(item: Item) -> bytes:
    text = json.dumps(list(vars(item).values()), separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parse(line: bytes) -> Item | None:
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    return Item(*json.loads(text))
