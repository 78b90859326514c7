"""Images inside tar shards, by offset, and inside an LMDB, by key."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import lmdb

from wallclock.corpus.manifest import Item
from wallclock.corpus.readers import Reader, read_failure
from wallclock.errors import ImageError

#: By folder, the process that opened the database and its handle: LMDB forbids opening one twice in
#: a process, and using one that the parent opened before a fork.
_databases: dict[Path, tuple[int, lmdb.Environment]] = {}
#: Guards opening: threads share descriptors and databases.
_open_lock = threading.Lock()


class TarReader(Reader):
    """One `pread` an image, at the offset in its row: `00003.tar@1536`."""

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
            raise read_failure(error) from error
        return _complete(data, item)

    def __del__(self) -> None:
        for descriptor in self._shards.values():
            os.close(descriptor)

    def _shard(self, name: str) -> int:
        if name not in self._shards:
            with _open_lock:
                if name not in self._shards:
                    self._shards[name] = os.open(self._root / name, os.O_RDONLY | os.O_CLOEXEC)
        return self._shards[name]


class LmdbReader(Reader):
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
            raise read_failure(error) from error
        return _complete(data or b"", item)


def close_database(root: Path) -> None:
    """Unmap this process's view of a database; the next read opens it again."""
    _, database = _databases.pop(root, (0, None))
    if database is not None:
        database.close()


def _database(root: Path) -> lmdb.Environment:
    known = _databases.get(root)
    if known is not None and known[0] == os.getpid():
        return known[1]
    with _open_lock:
        if root not in _databases or _databases[root][0] != os.getpid():
            close_database(root)
            database = lmdb.open(str(root), readonly=True, lock=False, max_spare_txns=4)
            _databases[root] = (os.getpid(), database)
        return _databases[root][1]


def _complete(data: bytes, item: Item) -> bytes:
    if len(data) != item.bytes:
        reason = f"{len(data)} bytes, the manifest says {item.bytes}: the pack was changed"
        raise ImageError("read", reason)
    return data
