"""Load files into the page cache, or evict them, before a pass: both without root."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

#: Bytes per read: a shard or a database can be larger than memory.
_CHUNK_BYTES = 1 << 22


def warm(paths: Iterable[Path]) -> None:
    """Read every file once, so that the pass reads from memory."""
    for path in paths:
        # The pass meets an unreadable file again and lists it as a failure of `read`.
        with suppress(OSError), open(path, "rb", buffering=0) as file:
            while file.read(_CHUNK_BYTES):
                pass


def evict(paths: Iterable[Path]) -> None:
    """Drop the files' pages (`posix_fadvise(DONTNEED)`), so that the pass reads from disk.

    Each file is flushed first, because dirty pages stay.
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
