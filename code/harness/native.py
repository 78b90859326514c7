"""The path of the shared libturbojpeg."""

import ctypes
import ctypes.util
import os
import sys
from contextlib import suppress
from functools import cache

#: What to do where libturbojpeg is missing.
INSTALL_HINT = (
    "apt-get install libturbojpeg0 (Ubuntu: libturbojpeg); without root: conda create -p turbo "
    "-c conda-forge libjpeg-turbo, then export "
    "WALLCLOCK_LIBTURBOJPEG=$PWD/turbo/lib/libturbojpeg.so.0"
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
    candidates = [f"{folder}/libturbojpeg.so.0" for folder in (f"{sys.prefix}/lib", *_FOLDERS)]
    candidates.append(ctypes.util.find_library("turbojpeg") or "")
    if forced is not None:
        candidates = [forced]
    for path in filter(None, candidates):
        with suppress(OSError):
            ctypes.CDLL(path)
            return path
    return None
