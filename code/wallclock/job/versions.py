"""A version of each file of a list: what changes when its bytes do."""

import os
from concurrent.futures import Executor
from itertools import chain
from typing import Any

import pyarrow as pa

#: Threads that look files up: a network file system answers late. Files that each takes at once.
THREADS, _FILES = 16, 512


def version_of(path: str | bytes) -> str:
    """Size and modification time, which rsync and git trust, too; empty where there is no file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # `suppress` would cost as much as the call
        return ""
    return f"{status.st_size}-{status.st_mtime_ns}"


def versions_of(pool: Executor, where: Any, root: bytes = b"") -> Any:
    """The versions of an Arrow array of paths and URLs; a URL has none.

    Args:
        where: binary, `root` goes before each.
    """
    paths = where.to_pylist()
    parts = [paths[at : at + _FILES] for at in range(0, len(paths), _FILES)]
    versions = pool.map(lambda part: [version_of(root + name) for name in part], parts)
    return pa.array(chain.from_iterable(versions), pa.string(), size=len(paths))
