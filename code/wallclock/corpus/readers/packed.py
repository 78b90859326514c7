"""Images inside tar shards, by offset, and inside an LMDB, by key."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import lmdb

from wallclock.corpus.manifest import Item
from wallclock.errors import ImageError

#: LMDB forbids to open a database twice in one process, and to use one that the parent had open
#: before a fork: by folder, the process that opened it and what it opened.
_databases: dict[Path, tuple[int, lmdb.Environment]] = {}
#: Held while something is opened: threads share what they read from.
_opening = threading.Lock()


class TarReader:
    """One `pread` an image, at the offset that its row names: `00003.tar@1536`."""

    layout = "tar"

    def __init__(self, root: Path) -> None:
        self._root = root
        self._shards: dict[str, int] = {}

    def __call__(self, item: Item) -> bytes:
        """The member's bytes."""
        name, _, offset = item.path.partition("@")
        try:
            data = os.pread(self._shard(name), item.bytes, int(offset))
        except (OSError, ValueError) as error:
            raise ImageError("read", getattr(error, "strerror", None) or str(error)) from error
        return _whole(data, item)

    def expect(self, items: Sequence[Item]) -> None:
        """Nothing: the kernel reads ahead, or does not."""

    def expect_too(self, items: Sequence[Item]) -> None:
        """Nothing, as `expect`."""

    def __del__(self) -> None:
        for descriptor in self._shards.values():
            os.close(descriptor)

    def _shard(self, name: str) -> int:
        if name not in self._shards:
            with _opening:
                if name not in self._shards:
                    self._shards[name] = os.open(self._root / name, os.O_RDONLY | os.O_CLOEXEC)
        return self._shards[name]


class LmdbReader:
    """One `get` an image, copied out of the map."""

    layout = "lmdb"

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, item: Item) -> bytes:
        """The value's bytes."""
        try:
            with _database(self._root).begin() as transaction:
                data = transaction.get(item.path.encode())
        except lmdb.Error as error:
            raise ImageError("read", str(error)) from error
        return _whole(data or b"", item)

    def expect(self, items: Sequence[Item]) -> None:
        """Nothing: the kernel reads ahead, or does not."""

    def expect_too(self, items: Sequence[Item]) -> None:
        """Nothing, as `expect`."""


def close_database(root: Path) -> None:
    """Unmap this process's view of a database; the next read opens it again."""
    _, database = _databases.pop(root, (0, None))
    if database is not None:
        database.close()


def _database(root: Path) -> lmdb.Environment:
    known = _databases.get(root)
    if known is not None and known[0] == os.getpid():
        return known[1]
    with _opening:
        if root not in _databases or _databases[root][0] != os.getpid():
            close_database(root)
            _databases[root] = (
                os.getpid(),
                lmdb.open(str(root), readonly=True, lock=False, max_spare_txns=4),
            )
        return _databases[root][1]


def _whole(data: bytes, item: Item) -> bytes:
    if len(data) != item.bytes:
        raise ImageError(
            "read", f"{len(data)} bytes, the manifest says {item.bytes}: the pack was changed"
        )
    return data
