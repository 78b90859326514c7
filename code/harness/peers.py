"""Libraries of others that this suite is compared with: installed apart, and perhaps absent."""

from collections.abc import Sequence
from importlib import import_module, metadata, util
from typing import Any

from wallclock.errors import Unavailable

#: What installs them.
INSTALL = "make setup-peers"


def import_or_unavailable(module: str, *, hint: str = INSTALL) -> Any:
    """Import a peer's library.

    Raises:
        Unavailable: it is not installed, or it does not load; the reason names the fix.
    """
    package = module.partition(".")[0]
    if util.find_spec(package) is None:
        raise Unavailable(f"{package} is not installed: {INSTALL}")
    try:
        return import_module(module)
    except (ImportError, OSError, RuntimeError) as error:
        raise load_failure(module, error, hint) from error


def installed(distributions: Sequence[str]) -> str:
    """Names and versions of distributions, for the key of a cell: once one is there, it counts."""
    versions = ((name, _version(name)) for name in distributions)
    return ", ".join(f"{name} {number}" if number else f"no {name}" for name, number in versions)


def are_installed(distributions: Sequence[str]) -> bool:
    """Whether all of these distributions are here; each may still fail to load."""
    return all(map(_version, distributions))


def _version(distribution: str) -> str:
    """Empty where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def load_failure(module: str, error: Exception, hint: str) -> Unavailable:
    """The reason for a library that is installed and does not load."""
    reason = " ".join(str(error).split())
    return Unavailable(f"{module} does not load: {reason[:200]}; {hint}")
