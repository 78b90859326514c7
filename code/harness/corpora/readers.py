"""Stage `read`: an image's bytes, of a file or of a pack, and the page cache before it."""

import ctypes
import mmap
import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from harness.corpora.manifest import Item, Manifest
from wallclock.errors import ImageError
from wallclock.fetch.sources import Reader, failure

#: The kind of a corpus whose images lie in a few files (`harness.corpora.pack`).
PACKED = "packed"
#: Bytes per read into the page cache: a shard can be larger than memory.
_CHUNK_BYTES = 1 << 22
#: Files at most whose share of the page cache is read back.
_SAMPLED_FILES = 1000
_mincore = ctypes.CDLL(None).mincore


class FileReader(Reader):
    """Reads files, each with three system calls; the kernel reads ahead, or does not."""

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

    def place(self, item: Item) -> str | None:
        """The file's path, unless it is to leave the page cache again."""
        return None if self.drops else f"{self._root}/{item.path}"


class PackReader(FileReader):
    """One `pread` an image, at the offset in its row: `00003.tar@1536`."""

    layout = PACKED

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._files: dict[str, int] = {}
        #: Threads share descriptors.
        self._opening = threading.Lock()

    def __call__(self, item: Item) -> bytes:
        """The image's bytes."""
        name, _, offset = item.path.partition("@")
        try:
            with self._opening:
                if name not in self._files:
                    self._files[name] = os.open(self._root / name, os.O_RDONLY | os.O_CLOEXEC)
            return check_complete(os.pread(self._files[name], item.bytes, int(offset)), item)
        except (OSError, ValueError) as error:
            raise failure(error) from error

    def place(self, item: Item) -> None:
        """None: its file has others, too."""

    def __del__(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)


def make(manifest: Manifest) -> Reader:
    """Open a reader for a corpus's images."""
    reader = (PackReader if manifest.kind == PACKED else FileReader)(manifest.root)
    reader.drops = manifest.cold
    return reader


def stored_files(manifest: Manifest) -> list[Path]:
    """The files that hold a corpus's valid images."""
    names = [item.path for item in manifest.valid]
    if manifest.kind == PACKED:
        names = [*dict.fromkeys(name.partition("@")[0] for name in names)]
    return [manifest.root / name for name in names]


def warm(paths: Iterable[Path]) -> None:
    """Read every file once, so that the pass reads from memory."""
    for path in paths:
        # The pass meets an unreadable file again and lists it as a failure of `read`.
        with suppress(OSError), open(path, "rb", buffering=0) as file:
            while file.read(_CHUNK_BYTES):
                pass


def evict(paths: Iterable[Path]) -> None:
    """Drop these files from the page cache, without root, so that the pass reads a disk.

    Each is flushed first, because dirty pages stay; so do pages that this process has mapped.
    """
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


def disk_bytes() -> int:
    """Bytes that this process has made the kernel fetch from a block device; Linux counts them."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def check_complete(data: bytes, item: Item) -> bytes:
    """The bytes, if they are as many as listed. Raises `ImageError` otherwise."""
    if len(data) != item.bytes:
        reason = f"{len(data)} bytes, the manifest says {item.bytes}: the pack was changed"
        raise ImageError("read", reason)
    return data
