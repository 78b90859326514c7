"""Stage `read`: an image's bytes, however its corpus stores them, and the page cache before it.

Most corpora are folders of files. One that this suite has packed holds `.wallclock-storage.json`,
which says so: tar shards, an LMDB, Parquet, or decoded pixels. In a folder of the user's, that file
means nothing: a folder must never say where to read from.
"""

import ctypes
import json
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.corpora.manifest import Item, Manifest
from wallclock.errors import ImageError, UserError, check_name
from wallclock.fetch import Reader, failure

#: The file by which a folder declares that it does not hold one file an image.
MARKER = ".wallclock-storage.json"
#: The table of a Parquet layout.
PARQUET_FILE = "images.parquet"
#: Bytes per read into the page cache: a shard or a database can be larger than memory.
_CHUNK_BYTES = 1 << 22
#: Files at most whose share of the page cache is read back.
_SAMPLED_FILES = 1000
_mincore = ctypes.CDLL(None).mincore

#: By folder, the process that opened the database and its handle: LMDB forbids opening one twice in
#: a process, and using one that the parent opened before a fork.
_databases: dict[Path, tuple[int, Any]] = {}
#: Guards opening: threads share descriptors and databases.
_open_lock = threading.Lock()


class FileReader(Reader):
    """Reads files, each with three system calls; the kernel reads ahead, or does not.

    `layout`, of this one and of its subclasses: files, tar, lmdb, parquet or pixels.
    """

    layout = "files"
    #: Whether a file leaves the page cache again, so that the next read of it is cold, too.
    drops = False

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, item: Item) -> bytes:
        """The image's bytes, as many as listed.

        Raises:
            ImageError: they cannot be read, or are more or fewer than the manifest says.
        """
        try:
            descriptor = os.open(f"{self._root}/{item.path}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                # One byte more than listed, so that a grown file is detected.
                data = os.read(descriptor, item.bytes + 1)
                while 0 < len(data) < item.bytes and (
                    rest := os.read(descriptor, item.bytes + 1 - len(data))
                ):
                    data += rest
                if self.drops:
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise failure(error) from error
        if len(data) != item.bytes:
            length = f"more than {item.bytes}" if len(data) > item.bytes else len(data)
            change = f"{length} bytes, the manifest says {item.bytes}: changed since it was listed"
            raise ImageError("read", change)
        return data


class TarReader(FileReader):
    """One `pread` an image, at the offset in its row: `00003.tar@1536`."""

    layout = "tar"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._shards: dict[str, int] = {}

    def __call__(self, item: Item) -> bytes:
        """The member's bytes."""
        name, _, offset = item.path.partition("@")
        try:
            with _open_lock:
                if name not in self._shards:
                    self._shards[name] = os.open(self._root / name, os.O_RDONLY | os.O_CLOEXEC)
            return check_complete(os.pread(self._shards[name], item.bytes, int(offset)), item)
        except (OSError, ValueError) as error:
            raise failure(error) from error

    def __del__(self) -> None:
        for descriptor in self._shards.values():
            os.close(descriptor)


class MapReader(FileReader):
    """The same, copied out of a memory map: page faults in place of a system call."""

    layout = "pixels"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._maps: dict[str, mmap.mmap] = {}

    def __call__(self, item: Item) -> bytes:
        """The image's bytes."""
        name, _, offset = item.path.partition("@")
        with _open_lock:
            if name not in self._maps:
                with open(self._root / name, "rb") as file:
                    self._maps[name] = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        return check_complete(self._maps[name][int(offset) : int(offset) + item.bytes], item)


class ParquetReader(FileReader):
    """A row group at a time, of which each thread keeps its last: row 3 of group 5 is `5@3`."""

    layout = "parquet"

    def __init__(self, root: Path) -> None:
        import pyarrow.parquet as pq

        super().__init__(root)
        path = root / PARQUET_FILE
        # The footer is read once, and not by each thread.
        self._open = partial(pq.ParquetFile, path, metadata=pq.read_metadata(path))
        #: Of each thread: the open file, its last row group and that group's images.
        self._local = threading.local()

    def __call__(self, item: Item) -> bytes:
        """The value's bytes."""
        local = self._local
        group, _, row = item.path.partition("@")
        if not hasattr(local, "file"):
            local.file = self._open()
            local.group = ""
        if local.group != group:
            table = local.file.read_row_group(int(group), columns=["image"], use_threads=False)
            local.group = group
            local.column = table.column(0)
        return check_complete(local.column[int(row)].as_py(), item)


class LmdbReader(FileReader):
    """One `get` an image, copied out of the map."""

    layout = "lmdb"

    def __init__(self, root: Path) -> None:
        import lmdb

        super().__init__(root)
        self._lmdb = lmdb

    def __call__(self, item: Item) -> bytes:
        """The value's bytes."""
        try:
            with self._database().begin() as transaction:
                return check_complete(transaction.get(item.path.encode()) or b"", item)
        except self._lmdb.Error as error:
            raise failure(error) from error

    def _database(self) -> Any:
        process = os.getpid()
        with _open_lock:
            if self._root not in _databases or _databases[self._root][0] != process:
                release(self._root)
                path = str(self._root)
                database = self._lmdb.open(path, readonly=True, lock=False, max_spare_txns=4)
                _databases[self._root] = (process, database)
            return _databases[self._root][1]


_READERS: Mapping[str, Callable[[Path], FileReader]] = {
    "files": FileReader,
    "tar": TarReader,
    "lmdb": LmdbReader,
    "parquet": ParquetReader,
    "pixels": TarReader,
}


def make(manifest: Manifest) -> Reader:
    """Open a reader for a corpus's images.

    Raises:
        UserError: the corpus declares an unknown storage.
    """
    reader = _READERS[storage_of(manifest)](manifest.root)
    reader.drops = manifest.cold
    return reader


def storage_of(manifest: Manifest) -> str:
    """How a corpus's images are stored: one of `_READERS`."""
    root = manifest.root
    if manifest.kind == "folder":
        return "files"
    try:
        layout = json.loads((root / MARKER).read_text(encoding="utf-8"))["layout"]
    except (FileNotFoundError, NotADirectoryError):
        return "files"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{root / MARKER} cannot be read; delete {root} and run the same command again"
        ) from error
    return check_name(str(layout), _READERS.keys() - {"files"}, "storage")


def stored_files(manifest: Manifest) -> list[Path]:
    """The files that hold a corpus's valid images."""
    storage = storage_of(manifest)
    root = manifest.root
    if storage == "lmdb":
        return [root / "data.mdb"]
    paths = (item.path for item in manifest.valid)
    if storage == "parquet":
        return [root / PARQUET_FILE]
    names = (path if storage == "files" else path.partition("@")[0] for path in paths)
    return [root / name for name in dict.fromkeys(names)]


def warm(paths: Iterable[Path]) -> None:
    """Read every file once, so that the pass reads from memory."""
    for path in paths:
        # The pass meets an unreadable file again and lists it as a failure of `read`.
        with suppress(OSError), open(path, "rb", buffering=0) as file:
            while file.read(_CHUNK_BYTES):
                pass


def evict(root: Path, paths: Iterable[Path]) -> None:
    """Drop these files of `root` from the page cache, without root, so that the pass reads a disk.

    Each is flushed first, because dirty pages stay; so do pages that this process has mapped.
    """
    release(root)
    for path in paths:
        with suppress(OSError), open(path, "rb") as file:
            os.fsync(file)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_share(paths: Sequence[Path]) -> float | None:
    """The share of these files' pages that memory holds, as mincore says; None for no page.

    Of 1,000 files at most, evenly spaced. The kernel answers only for files that this user may
    write or owns; of others it says that all is there.
    """
    n_resident = n_pages = 0
    for path in paths[:: -(-len(paths) // _SAMPLED_FILES) or 1]:
        with (
            suppress(OSError, ValueError),  # unreadable, or empty
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped,
        ):
            view = np.frombuffer(mapped, np.uint8)
            resident = np.zeros(-(-view.size // mmap.PAGESIZE), np.uint8)
            address = ctypes.c_void_p(view.ctypes.data)
            vector = ctypes.c_void_p(resident.ctypes.data)
            if not _mincore(address, ctypes.c_size_t(view.size), vector):
                n_resident += int((resident & 1).sum())
                n_pages += resident.size
            del view  # or the map could not be closed
    return n_resident / n_pages if n_pages else None


def release(root: Path) -> None:
    """Close this process's view of a database; the next read opens it again."""
    _, database = _databases.pop(root, (0, None))
    if database is not None:
        database.close()


def check_complete(data: bytes, item: Item) -> bytes:
    """The bytes, if they are as many as listed. Raises `ImageError` otherwise."""
    if len(data) != item.bytes:
        reason = f"{len(data)} bytes, the manifest says {item.bytes}: the pack was changed"
        raise ImageError("read", reason)
    return data
