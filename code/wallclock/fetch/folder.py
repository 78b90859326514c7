"""The images under a folder, found by content."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from wallclock.formats import sniff

#: A file with such a name is listed even if its content is no image.
EXTENSIONS = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif"})


def candidates(root: Path) -> Iterator[str]:
    """The names of the images under a folder, and of what cannot be read, relative to it."""
    errors: list[OSError] = []
    for folder, subfolders, files in os.walk(root, onerror=errors.append):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in files:
            path = os.path.join(folder, name)
            extension = os.path.splitext(name)[1].lower()
            if not name.startswith(".") and (extension in EXTENSIONS or _is_image(path)):
                yield os.path.relpath(path, root)
    # An unreadable folder becomes a failure row.
    yield from (os.path.relpath(error.filename, root) for error in errors)


def _is_image(path: str) -> bool:
    with suppress(OSError):
        if stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "rb") as file:
                return sniff(file.read(16)) is not None
    return False


def id_of(name: str) -> str:
    """A file's id: its name; bytes that are not UTF-8 as \\xNN, which every sink can store."""
    raw = name.replace(os.sep, "/").encode("utf-8", "surrogateescape")
    return raw.decode("utf-8", "backslashreplace")
