"""Which files the program reads as images, by their names: for `--try`, which loads them again.

A file per process beside its counters: absolute paths, each followed by a zero byte.
"""

import os
from _thread import RLock
from typing import Any

from . import layout


class Paths:
    """Writes each path once, the first `layout.N_PATHS` of a process.

    `path`: the file to write; None where no paths are recorded.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._seen: set[str] = set()
        self._lock = RLock()

    def add(self, name: Any) -> None:
        """An image is read from this file. `name`: a path; anything else is left out."""
        path = _absolute(name) if self._path is not None else ""
        if not path or path in self._seen:
            return
        with self._lock:
            if path in self._seen or len(self._seen) >= layout.N_PATHS or self._path is None:
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
