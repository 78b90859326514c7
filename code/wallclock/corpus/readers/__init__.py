"""Stage `read`: an image's bytes, from wherever its corpus keeps them.

Most corpora are folders of files. A folder that holds `.wallclock-storage.json` is something else,
and says what: tar shards, an LMDB, or a store to GET from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from wallclock.corpus.manifest import Item
from wallclock.errors import ImageError, UserError, check_name

#: The file by which a folder says that it does not hold one file an image.
MARKER = ".wallclock-storage.json"


class Reader(Protocol):
    """Bytes of one image after another."""

    #: files, tar, lmdb or remote.
    layout: str

    def __call__(self, item: Item) -> bytes:
        """The image's bytes; raises `ImageError` where they cannot be had, or are not as many as listed."""

    def expect(self, items: Sequence[Item]) -> None:
        """These will be read next, in this order: what can be fetched ahead of its turn may be."""

    def expect_too(self, items: Sequence[Item]) -> None:
        """These after those that were announced before."""


class FileReader:
    """One file an image."""

    layout = "files"

    def __init__(self, root: Path) -> None:
        self._root = str(root)

    def __call__(self, item: Item) -> bytes:
        """The file's bytes."""
        return read_file(self._root, item.path, item.bytes)

    def expect(self, items: Sequence[Item]) -> None:
        """Nothing: the kernel reads ahead, or does not."""

    def expect_too(self, items: Sequence[Item]) -> None:
        """Nothing, as `expect`."""


def read_file(root: Path | str, path: str, expected_bytes: int) -> bytes:
    """Return the bytes of `root/path`, by three system calls and no file object.

    Raises:
        ImageError: it cannot be read, or its length is not what the manifest says.
    """
    try:
        handle = os.open(f"{root}/{path}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # One byte more than listed: a file that has grown shows it.
            data = os.read(handle, expected_bytes + 1)
            while 0 < len(data) < expected_bytes and (
                rest := os.read(handle, expected_bytes + 1 - len(data))
            ):
                data += rest
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:
        raise ImageError("read", getattr(error, "strerror", None) or str(error)) from error
    if len(data) != expected_bytes:
        found = f"more than {expected_bytes}" if len(data) > expected_bytes else len(data)
        raise ImageError(
            "read",
            f"{found} bytes, the manifest says {expected_bytes}: changed since it was listed",
        )
    return data


def make(root: Path) -> Reader:
    """The reader for the images under `root`. It belongs to the process that made it; its threads may share it.

    Raises:
        UserError: the folder says that it is something which is not known here.
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
    """What is under `root`: files, tar, lmdb or remote."""
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
    """The files that hold these images: none where they come from elsewhere."""
    storage = storage_of(root)
    if storage == "remote":
        return []
    if storage == "lmdb":
        return [root / "data.mdb"]
    names = (item.path.partition("@")[0] if storage == "tar" else item.path for item in items)
    return [root / name for name in dict.fromkeys(names)]


def release(root: Path) -> None:
    """Let go of what this process has mapped of `root`: mapped pages cannot be evicted."""
    if storage_of(root) == "lmdb":
        from wallclock.corpus.readers import packed

        packed.close_database(root)
