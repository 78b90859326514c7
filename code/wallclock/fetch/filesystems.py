"""What a URL is, and the stores that fsspec opens: `gs://`, `memory://`, and others."""

import os
import re
from typing import Any
from urllib.parse import unquote_to_bytes

from wallclock.errors import UserError, first_line
from wallclock.fetch.retries import PermanentError, TransientError

#: `gs://…`, and what fsspec chains: `simplecache::gs://…`.
_URL = re.compile(r"[A-Za-z][\w+.-]*(::[A-Za-z][\w+.-]*)*://")
#: fsspec's URLs of files of this machine, of which it would open a pipe and wait.
_LOCAL = re.compile(r"([\w+.-]+::)*(file|local)://", re.IGNORECASE)
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


def place_of(text: str) -> str:
    """A path, or a URL with its scheme in small letters; `file://` becomes a path.

    Blanks around a URL are left out, and nothing of it is encoded or decoded.
    """
    url = text.strip()
    if not is_url(url):
        return text
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    if scheme.lower() in ("file", "local") and host.lower() in ("", "localhost"):
        return os.fsdecode(b"/" + unquote_to_bytes(path))
    return f"{scheme.lower()}://{rest}"


def may_name(base: str, place: str) -> bool:
    """Whether a list behind the URL `base` may name `place`: a URL of a server, or of its store."""
    scheme = place.partition("://")[0] if is_url(place) else ""
    own = base.partition("://")[0] if "::" not in place else ""
    return bool(scheme) and scheme in ("http", "https", "s3", own)


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
        UserError: fsspec, or its library for this protocol, is not installed.
    """
    if _LOCAL.match(url):
        raise PermanentError("no URL of a file of this machine: give file:///path, or the path")
    try:
        filesystem, path = filesystem_of(url)
    except UserError as error:
        if isinstance(error.__cause__, ValueError):  # no such protocol: this URL's fault alone
            raise PermanentError(str(error)) from error
        raise
    try:
        data: bytes = filesystem.cat_file(path, end=most)
    except tuple(_PERMANENT) as error:
        raise PermanentError(_PERMANENT.get(type(error)) or first_line(error)) from error
    except OSError as error:
        raise TransientError(first_line(error)) from error
    return data
