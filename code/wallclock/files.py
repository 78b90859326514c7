"""JSON for a person, digests, atomic writes, and the user's cache."""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from wallclock.errors import VERSION, UserError


def pretty_json(value: Any) -> str:
    """JSON for a person: sorted keys, indented, no NaN, with a final newline."""
    return json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def sha256_file(path: Path) -> str:
    """Hexadecimal sha256 of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def disk_is_full(error: BaseException) -> bool:
    """Whether an error says so: pyarrow, LMDB and the file system each have their own."""
    code = getattr(error, "errno", None)
    return code in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error)


def why_unwritable(error: BaseException, path: Path) -> str:
    """Why a full disk, or a limit, keeps a file from being written, and what to do; or empty."""
    again = "and run the same command again"
    if disk_is_full(error):
        return f"no space left while writing {path}; free some {again}"
    # pyarrow's error has no number, but names it.
    if getattr(error, "errno", None) == errno.EFBIG or f"[errno {errno.EFBIG}]" in str(error):
        return f"a file reached its size limit while writing {path}; raise ulimit -f {again}"
    return ""


@contextmanager
def atomic_open(path: Path, mode: str = "w", *, sync: bool = True) -> Iterator[IO[Any]]:
    """Open a temporary file next to `path` that replaces it when the block ends without an error.

    A crash or a full disk leaves the old file or none. A link at `path` is replaced, too. With
    `sync` the bytes are on disk before the rename; without, many small files cost no flush each.

    Raises UserError: the disk is full, or the file over the limit of a file's size.
    """
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:12]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open(mode.replace("w", "x"), **text) as handle:  # type: ignore[call-overload]
            yield handle
            handle.flush()
            if sync:
                os.fsync(handle.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if why := why_unwritable(error, path):
            raise UserError(why) from error
        raise


def write_text(path: Path, text: str) -> None:
    """Write `text` (UTF-8, LF) to `path` atomically."""
    with atomic_open(path) as handle:
        handle.write(text)


def write_bytes(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write `data` to `path` atomically."""
    with atomic_open(path, "wb", sync=sync) as handle:
        handle.write(data)


def cache_folder(kind: str) -> Path:
    """Where the user's cache has things of a kind; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "wallclock" / kind


def cache_key(depends: Any, libraries: Sequence[str]) -> str:
    """Digest of what a thing depends on, as JSON, with this package's and libraries' versions."""
    versions = {"wallclock": VERSION}
    for name in libraries:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return hashlib.sha256(json.dumps([depends, versions], sort_keys=True).encode()).hexdigest()[:32]


def cached(kind: str, depends: Any, libraries: Sequence[str], make: Callable[[], Any]) -> Any:
    """What `make` returns, as JSON: from the cache, or made and kept there if it can be."""
    path = cache_folder(kind) / f"{cache_key(depends, libraries)}.json"
    with suppress(OSError, ValueError):
        return json.loads(path.read_bytes())
    value = make()
    with suppress(OSError):
        write_text(path, json.dumps(value))
    return value
