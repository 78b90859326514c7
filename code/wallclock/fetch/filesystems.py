"""Stores that fsspec opens: `gs://`, `file://`, `memory://`, and all others that it knows."""

import re
from typing import Any

from wallclock.errors import UserError, first_line
from wallclock.fetch.retries import PermanentError, TransientError

#: `gs://…`, and what fsspec chains: `simplecache::gs://…`.
_URL = re.compile(r"[A-Za-z][\w+.-]*(::[A-Za-z][\w+.-]*)*://")
#: Asking again changes nothing; some filesystems raise these without the system's words.
_PERMANENT = {
    FileNotFoundError: "No such file or directory",
    IsADirectoryError: "Is a directory",
    NotADirectoryError: "Not a directory",
    PermissionError: "Permission denied",
}


def is_url(where: str) -> bool:
    """Whether a text is a URL, not a path."""
    return "://" in where and _URL.match(where) is not None


def filesystem_of(url: str) -> tuple[Any, str]:
    """fsspec's filesystem for a URL, and the path in it.

    Raises UserError: fsspec, or its library for this protocol, is not installed.
    """
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise UserError(f"{url} needs fsspec: pip install fsspec") from error
    try:
        filesystem, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UserError(f"{url}: {first_line(error)}") from error
    return filesystem, path


def read_url(url: str, most: int) -> bytes:
    """The first `most` bytes of a file.

    Raises:
        PermanentError, TransientError: it cannot be read.
        UserError: as `filesystem_of`.
    """
    filesystem, path = filesystem_of(url)
    try:
        data: bytes = filesystem.cat_file(path, end=most)
    except tuple(_PERMANENT) as error:
        raise PermanentError(_PERMANENT.get(type(error)) or first_line(error)) from error
    except OSError as error:
        raise TransientError(first_line(error)) from error
    return data
