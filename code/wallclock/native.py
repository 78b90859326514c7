"""The path of the shared libturbojpeg, and the libjpeg-turbo version of a compiled file."""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
import os
import re
import sys
from functools import cache
from pathlib import Path

#: The one line to type where libturbojpeg is missing.
INSTALL_HINT = (
    "sudo apt-get install -y libturbojpeg0 (Ubuntu: libturbojpeg; conda: libjpeg-turbo>=3)"
)

_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/opt/libjpeg-turbo/lib64",
)


@cache
def find_libturbojpeg() -> str | None:
    """Path or name of libturbojpeg, or None.

    The environment's own library (conda) comes before the system's. WALLCLOCK_LIBTURBOJPEG, if set,
    is the only candidate.
    """
    forced = os.environ.get("WALLCLOCK_LIBTURBOJPEG")
    folders = (str(Path(sys.prefix) / "lib"), *_FOLDERS)
    usual = [
        *(f"{folder}/libturbojpeg.so.0" for folder in folders),
        ctypes.util.find_library("turbojpeg"),
    ]
    candidates = usual if forced is None else [forced]
    return next((path for path in candidates if path and _loads(path)), None)


def _loads(path: str) -> bool:
    try:
        ctypes.CDLL(path)
    except OSError:
        return False
    return True


@cache
def libjpeg_turbo_version(path: str) -> str:
    """The version in libjpeg-turbo's copyright string inside a compiled file, or 'unknown'.

    The TurboJPEG 2 API does not report its version; every release has the string.
    """
    try:
        with (
            open(path, "rb") as handle,
            mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            match = re.search(rb"libjpeg-turbo version (\d+\.\d+(?:\.\d+)?)", content)
            # The match reads from the mapping: take the text before it closes.
            return match.group(1).decode() if match else "unknown"
    except (OSError, ValueError):
        return "unknown"
