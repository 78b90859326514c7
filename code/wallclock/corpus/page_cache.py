"""Put files into the page cache, or out of it, before a pass: both without root."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

#: A shard or a database can be larger than the memory.
_PIECE_BYTES = 1 << 22


def warm(paths: Iterable[Path]) -> None:
    """Read every file once, so that the pass reads from memory."""
    for path in paths:
        try:
            with open(path, "rb", buffering=0) as handle:
                while handle.read(_PIECE_BYTES):
                    pass
        except OSError:
            # The pass itself meets the same file and lists it as a failure of `read`.
            continue


def evict(paths: Iterable[Path]) -> None:
    """Ask the kernel to drop the files' pages (`posix_fadvise(DONTNEED)`), so that the pass reads from disk.

    Dirty pages stay, so each file is flushed first.
    """
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
