"""Imported by every Python process of a traced program, before its own code.

Leaves no trace on the import path, and hands over to the `sitecustomize` of the environment.
"""

import importlib
import os
import sys
import types

_HERE = os.path.dirname(os.path.abspath(__file__))
#: The package beside this folder, under a name that no program has.
_PACKAGE = "_wallclock_trace"


def _leave_the_path() -> None:
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != _HERE]
    sys.path_importer_cache.pop(_HERE, None)


def _hand_over() -> None:
    """Run the environment's own `sitecustomize`, as if this one were not there."""
    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


def _install() -> None:
    package = types.ModuleType(_PACKAGE)
    package.__path__ = [os.path.dirname(_HERE)]
    sys.modules[_PACKAGE] = package
    importlib.import_module(f"{_PACKAGE}.hook").install()


_leave_the_path()
try:
    if os.path.isdir(os.environ.get("WALLCLOCK_TRACE", "")):  # else it outlives the program
        if sys.version_info >= (3, 9):  # noqa: UP036 - the program may start an older Python
            _install()
        else:
            version = sys.version.partition(" ")[0]
            reason = f"it is Python {version}, and the trace needs 3.9"
            os.write(2, f"wallclock trace: process {os.getpid()} not traced: {reason}\n".encode())
except Exception as _error:  # noqa: BLE001 - whatever it is, the user's program must run
    os.write(2, f"wallclock trace: not traced: {type(_error).__name__}: {_error}\n".encode())
_hand_over()
