"""Binary files that are opened for reading: the time of their reads counts as `read`."""

from __future__ import annotations

import builtins
import io
import os
from types import ModuleType
from typing import Any

from .notes import format_by_name, format_of
from .tracer import Call, Tracer, disguise_as

#: Name of the reads of a file, and of `open` itself.
READ = "file.read"
OPEN = "open"


def patch_io(tracer: Tracer, module: ModuleType) -> None:
    """Have `open` give readers that count."""
    traced = _open(tracer, io.open, _reader(tracer))
    tracer.made[id(traced)] = traced
    builtins.open = io.open = traced


def _open(tracer: Tracer, original: Call, reader: Any) -> Call:
    timed = tracer.timed(_counted, tracer.slot("read", OPEN))

    def open(file: Any, mode: str = "r", buffering: int = -1, *more: Any, **options: Any) -> Any:
        # Other modes and buffers give files of other classes.
        if mode not in ("rb", "br") or buffering in (0, 1):
            return original(file, mode, buffering, *more, **options)
        if format_by_name(file):
            tracer.write_path(file)
        return timed(original, reader, file, mode, buffering, *more, **options)

    return disguise_as(original, open)


def _counted(original: Call, reader: Any, *args: Any, **options: Any) -> Any:
    """The file, in a buffer of the same size that counts."""
    opened = original(*args, **options)
    if type(opened) is not io.BufferedReader:
        return opened
    buffering, raw = args[2], opened.detach()
    # The attribute is Python's own, and the block size of the file system.
    size = buffering if buffering > 1 else getattr(raw, "_blksize", 0)
    return reader(raw, size if size > 1 else io.DEFAULT_BUFFER_SIZE)


def _reader(tracer: Tracer) -> Any:
    """The class of the files: a `BufferedReader` in all but its clock."""
    slot = tracer.slot("read", READ)
    count = tracer.count

    class BufferedReader(io.BufferedReader):
        __slots__ = ()

        def __repr__(self) -> str:
            try:
                return f"<_io.BufferedReader name={self.name!r}>"
            except AttributeError:
                return "<_io.BufferedReader>"

        def __reduce_ex__(self, protocol: Any) -> Any:
            raise TypeError("cannot pickle '_io.BufferedReader' object")

    def read(self: Any, size: int | None = -1, /) -> bytes:
        """Read and return up to n bytes."""
        data: bytes = timed_read(self, size)
        if (size is None or size < 0) and len(data) > 64 and format_of(data):
            count(slot, 1, tracer.clock())
        return data

    inner = io.BufferedReader
    timed_read = tracer.timed(inner.read, slot)
    made: Any = BufferedReader
    made.read = read
    for name in ("read1", "readinto", "readinto1", "peek"):
        setattr(made, name, tracer.timed(getattr(inner, name), slot))
    made.__module__, made.__qualname__ = "_io", "BufferedReader"
    return made


def count_read(tracer: Tracer, file: Any) -> None:
    """A decoder reads an image of this file, piece by piece."""
    if type(file).__module__ == "_io" and isinstance(file, io.BufferedReader):
        tracer.count(tracer.slot("read", READ), 1)


def length_of(file: Any) -> int:
    """Bytes of an open file; 0 where it cannot tell."""
    try:
        if isinstance(file, io.BytesIO):
            return file.getbuffer().nbytes
        return os.fstat(file.fileno()).st_size
    except (AttributeError, OSError, ValueError):
        return 0
