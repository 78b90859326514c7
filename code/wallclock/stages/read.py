"""Stage `read`: a file's bytes."""

from __future__ import annotations

from pathlib import Path

from wallclock.errors import ImageError


def read_file(root: Path, path: str, expected_bytes: int) -> bytes:
    """Return the bytes of `root / path`.

    Raises:
        ImageError: it cannot be read, or its length is not what the manifest says.
    """
    try:
        with open(root / path, "rb", buffering=0) as handle:
            data = handle.readall()
    except OSError as error:
        raise ImageError("read", error.strerror or type(error).__name__) from error
    if data is None or len(data) != expected_bytes:
        found = 0 if data is None else len(data)
        raise ImageError("read", f"{found} bytes, the manifest says {expected_bytes}: changed since it was listed")
    return data
