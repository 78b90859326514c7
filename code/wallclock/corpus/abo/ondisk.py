"""What of a list is on the disk already, and whether it still is what arrived."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count, lstat
from pathlib import Path

from wallclock.corpus.manifest import Item
from wallclock.files import sha256_file


def sound(
    known: Mapping[str, Item], paths: Iterable[str], root: Path, verify: bool
) -> dict[str, Item]:
    """Of `paths`, those that need not be fetched, with their rows.

    A file of another size, a link, or a missing one is out. One with another modification time than
    its object's has been touched: it is hashed. `verify` hashes every one, and asks again for those
    that the store refused before.
    """
    wanted = [known[path] for path in paths if path in known]
    with ThreadPoolExecutor(cpu_count()) as pool:
        # Hashing releases the GIL; a look at size and time is not worth a thread.
        doubtful = [
            item
            for item in wanted
            if not _refused(item) and (verify or _touched(root / item.path, item))
        ]
        digests = pool.map(lambda item: _hash(root, item), doubtful)
        hashed = {item.path: digest for item, digest in zip(doubtful, digests, strict=True)}
    return {
        item.path: item
        for item in wanted
        if (_refused(item) and not verify)
        or (not _refused(item) and hashed.get(item.path, item.sha256) == item.sha256)
    }


def _refused(item: Item) -> bool:
    """Whether the store gave no bytes: there is no file to look at."""
    return item.failed_stage == "read"


def _touched(path: Path, item: Item) -> bool:
    try:
        about = lstat(path)
    except OSError:
        return True
    return (about.st_size, about.st_mtime_ns) != (item.bytes, item.mtime_ns) or not stat.S_ISREG(
        about.st_mode
    )


def _hash(root: Path, item: Item) -> str:
    path = root / item.path
    try:
        about = lstat(path)
        if not stat.S_ISREG(about.st_mode) or about.st_size != item.bytes:
            return ""
        return sha256_file(path)
    except OSError:
        return ""
