"""Stage `read`: an image's bytes, however its corpus stores them.

Most corpora are folders of files. A folder that holds `.wallclock-storage.json` is something else
and names it: tar shards, an LMDB, or a store to GET from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from wallclock.corpus.manifest import Item
from wallclock.errors import ImageError, UserError, check_name

#: The file by which a folder declares that it does not hold one file an image.
MARKER = ".wallclock-storage.json"


class Reader:
    """Reads images; belongs to the process that opened it, whose threads may share it."""

    #: files, tar, lmdb or remote.
    layout: str
    #: Whether announcing images with `prefetch` does anything.
    fetches_ahead = False

    def __call__(self, item: Item) -> bytes:
        """The image's bytes, as many as listed.

        Raises:
            ImageError: they cannot be read, or are more or fewer than the manifest says.
        """
        raise NotImplementedError

    def prefetch(self, items: Sequence[Item]) -> None:
        """Prefetch these, which will be read next in this order, where the storage allows it."""

    def prefetch_more(self, items: Sequence[Item]) -> None:
        """Prefetch these after those that were announced before."""


class FileReader(Reader):
    """One file an image; the kernel reads ahead, or does not."""

    layout = "files"

    def __init__(self, root: Path) -> None:
        self._root = str(root)

    def __call__(self, item: Item) -> bytes:
        """The file's bytes."""
        return read_file(self._root, item.path, item.bytes)


def read_file(root: Path | str, path: str, expected_bytes: int) -> bytes:
    """Return the bytes of `root/path`, with three system calls and no file object.

    Raises:
        ImageError: it cannot be read, or its length is not what the manifest says.
    """
    try:
        descriptor = os.open(f"{root}/{path}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # One byte more than listed, so that a grown file is detected.
            data = os.read(descriptor, expected_bytes + 1)
            while 0 < len(data) < expected_bytes and (
                rest := os.read(descriptor, expected_bytes + 1 - len(data))
            ):
                data += rest
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise read_failure(error) from error
    if len(data) != expected_bytes:
        length = f"more than {expected_bytes}" if len(data) > expected_bytes else len(data)
        change = f"{length} bytes, the manifest says {expected_bytes}: changed since it was listed"
        raise ImageError("read", change)
    return data


def read_failure(error: Exception) -> ImageError:
    """A failure of `read`, in the system's words."""
    return ImageError("read", getattr(error, "strerror", None) or str(error))


def make(root: Path) -> Reader:
    """Open a reader for the images under `root`.

    Raises:
        UserError: the folder declares an unknown storage.
    """
    storage = storage_of(root)
    if storage == "files":
        return FileReader(root)
    if storage == "remote":
        from wallclock.corpus.readers import remote

        return remote.RemoteReader(root / MARKER)
    from wallclock.corpus.readers import packed

    return packed.TarReader(root) if storage == "tar" else packed.LmdbReader(root)


def storage_of(root: Path) -> str:
    """How images are stored under `root`: files, tar, lmdb or remote."""
    try:
        layout = json.loads((root / MARKER).read_text(encoding="utf-8"))["layout"]
    except (FileNotFoundError, NotADirectoryError):
        return "files"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{root / MARKER} cannot be read; delete {root} and run the same command again"
        ) from error
    return check_name(str(layout), ("tar", "lmdb", "remote"), "storage")


def stored(root: Path, items: Iterable[Item]) -> list[Path]:
    """The local files that hold these images; empty for a remote store."""
    storage = storage_of(root)
    if storage == "remote":
        return []
    if storage == "lmdb":
        return [root / "data.mdb"]
    names = (item.path.partition("@")[0] if storage == "tar" else item.path for item in items)
    return [root / name for name in dict.fromkeys(names)]


def release(root: Path) -> None:
    """Unmap what this process has mapped of `root`: mapped pages cannot be evicted."""
    if storage_of(root) == "lmdb":
        from wallclock.corpus.readers import packed

        packed.close_database(root)
