"""The file of counters of one process; see `layout` for what stands where."""

from __future__ import annotations

import mmap
import os

from . import layout


class Counters:
    """Creates the file, and hands out regions of it.

    Not thread-safe: `Tracer` holds a lock around every method.

    `folder`: None for no file: what is counted is lost.

    Raises OSError: the file cannot be made, or the disk is full.
    """

    def __init__(self, folder: str | None, now: int) -> None:
        self.pid: int = os.getpid()
        name = f"{self.pid}-{now}{layout.COUNTERS}"
        self.path: str | None = folder and os.path.join(folder, name)
        self._memory = _map(self.path) if self.path else mmap.mmap(-1, layout.FILE_BYTES)
        self.words: memoryview = memoryview(self._memory).cast("q")
        #: Regions whose threads have ended: others go on in them.
        self.free: list[int] = []
        self.words[layout.PID] = self.pid
        self.words[layout.STARTED] = now
        self.words[layout.MAGIC_WORD] = layout.MAGIC

    def write(self, *fields: str) -> None:
        """Add a line to the text; nothing where the text is full."""
        line = "\t".join(field.replace("\t", " ").replace("\n", " ") for field in fields)
        data = (line + "\n").encode("utf-8", "replace")
        used = self.words[layout.TEXT_USED]
        if used + len(data) <= layout.TEXT_BYTES:
            start = layout.HEAD_WORDS * layout.WORD + used
            self._memory[start : start + len(data)] = data
            # Last: a process may be killed between the two.
            self.words[layout.TEXT_USED] = used + len(data)

    def take(self) -> int | None:
        """Index of a region that no thread uses; None where all are taken or the disk is full."""
        used = self.words[layout.REGIONS_USED]
        start = layout.region_at(used) * layout.WORD
        if used < layout.N_REGIONS and self._allocate(start, layout.REGION_BYTES):
            self.words[layout.REGIONS_USED] = used + 1
            return used
        return self.free.pop() if self.free else None

    def _allocate(self, start: int, length: int) -> bool:
        """Reserve space: a write to a mapped file on a full disk would kill the process."""
        if self.path is None:
            return True
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.posix_fallocate(descriptor, start, length)
            finally:
                os.close(descriptor)
        except OSError:
            return False
        return True

    def region(self, index: int) -> memoryview:
        """The words of a region."""
        start = layout.region_at(index)
        return self.words[start : start + layout.REGION_WORDS]


def _map(path: str) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, layout.FILE_BYTES)
        os.posix_fallocate(descriptor, 0, layout.HEAD_BYTES)
        return mmap.mmap(descriptor, layout.FILE_BYTES)
    finally:
        os.close(descriptor)
