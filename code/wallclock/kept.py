"""The user's cache: what takes long to make, and depends on files and versions alone."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from wallclock.errors import VERSION
from wallclock.files import write_text


def folder(kind: str) -> Path:
    """Where things of a kind are kept; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "wallclock" / kind


def digest(depends: Any, libraries: Sequence[str]) -> str:
    """Of what a thing depends on, as JSON, with the versions of this package and of libraries."""
    versions = {"wallclock": VERSION, **{name: _version(name) for name in libraries}}
    return hashlib.sha256(json.dumps([depends, versions], sort_keys=True).encode()).hexdigest()[:32]


def remembered(kind: str, depends: Any, libraries: Sequence[str], make: Callable[[], Any]) -> Any:
    """What `make` returns, as JSON: from the cache, or made and kept there if it can be."""
    path = folder(kind) / f"{digest(depends, libraries)}.json"
    with suppress(OSError, ValueError):
        return json.loads(path.read_bytes())
    value = make()
    with suppress(OSError):
        write_text(path, json.dumps(value))
    return value


def _version(name: str) -> str:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return ""
