"""The native module: JPEG decoding and resizing in C, where it was compiled.

It is optional: without a compiler the product installs and runs, by simplejpeg and torch or Pillow.
`native.h` says what its parts are, `_native.pyi` what Python sees of it.
"""

from functools import cache
from importlib import import_module
from typing import Any

_NOT_COMPILED = "not compiled"


def find() -> Any:
    """The module, which is imported when it is first asked for; None: `described` says why not."""
    return _find()[0]


def described() -> str:
    """Its kernels; or why there is none and what to do, in one line."""
    module, missing = _find()
    return missing or str(module.choose_kernels())


@cache
def _find() -> tuple[Any, str]:
    try:
        return import_module("wallclock.native._native"), ""
    except ModuleNotFoundError:
        return None, _NOT_COMPILED
    except ImportError as error:
        return None, f"it cannot be loaded: {error}"
