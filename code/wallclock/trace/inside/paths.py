"""Which files the decoded images are: for `--try`, which loads them again.

A file per process beside its counters: absolute paths, each followed by a zero byte.
"""

import io
import os
from _thread import RLock, _local
from typing import Any

from . import layout

#: Attribute of an image of Pillow's: the name of its file, or the length of its bytes.
_SOURCE = "_wallclock_source"


class Paths:
    """Writes each path once, the first `layout.N_PATHS` of a process.

    `path`: the file to write; None where no paths are recorded.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._seen: set[str] = set()
        self._lock = RLock()
        #: Of the thread: `read`, path and length of the last image that it read as bytes.
        self._local: Any = _local()

    def add(self, name: Any) -> None:
        """An image of this file was decoded. `name`: a path; anything else is left out."""
        if self._path is None:
            return
        path = _absolute(name)
        if path:
            self._write(path)

    def add_read(self, name: Any, n_bytes: int) -> None:
        """This thread has read all bytes of an image from this file."""
        if self._path is not None:
            path = _absolute(name)
            self._local.read = (path, n_bytes) if path else None

    def add_bytes(self, n_bytes: int) -> None:
        """Bytes were decoded: they are the file that this thread read last, if as long.

        `n_bytes`: 0 where the length is unknown.
        """
        if self._path is None:
            return
        read = getattr(self._local, "read", None)
        if read is not None and n_bytes in (0, read[1]):
            self._local.read = None
            self._write(read[0])

    def note_source(self, image: Any, file: Any) -> None:
        """Pillow has opened an image: of a file's name, or of so many bytes.

        Where a plugin reads all of a file at once, it does not keep the file.
        """
        if self._path is None:
            return
        if isinstance(file, io.BytesIO):
            vars(image)[_SOURCE] = file.getbuffer().nbytes
        elif type(file).__module__ == "_io":  # members of archives have names that are no paths
            name = getattr(file, "name", None)
            vars(image)[_SOURCE] = None if isinstance(name, int) else name

    def add_image(self, image: Any) -> None:
        """Pillow decoded an image."""
        if self._path is None:
            return
        source = getattr(image, "filename", "") or vars(image).get(_SOURCE)
        if isinstance(source, int):
            self.add_bytes(source)
        elif source:
            self.add(source)

    def _write(self, path: str) -> None:
        if path in self._seen or self._path is None:
            return
        with self._lock:
            if path in self._seen or len(self._seen) >= layout.N_PATHS:
                return
            self._seen.add(path)
            try:
                _append(self._path, os.fsencode(path) + b"\0")
            except OSError:  # the disk is full, or the folder is gone
                self._path = None


def _append(path: str, data: bytes) -> None:
    # Opened each time: a program may close all descriptors that it does not know.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def _absolute(name: Any) -> str:
    """The path of a file; empty where the name is a descriptor's number or nothing of the kind."""
    try:
        return os.path.abspath(os.fsdecode(name))
    except (TypeError, ValueError, OSError):
        return ""
