"""The job itself: a folder, a list or a bucket of images → vectors on the disk.

from wallclock.job import embed

embed("/path/to/images", "/path/to/vectors", model="facebook/dinov2-small")
"""

from typing import TYPE_CHECKING, Any

from wallclock.errors import import_extra

if TYPE_CHECKING:
    from wallclock.job.settings import JobSettings as JobSettings
    from wallclock.job.start import Outcome as Outcome
    from wallclock.job.start import embed as embed

#: Name → its module, imported when the name is first used.
_HOMES = {
    "JobSettings": "wallclock.job.settings",
    "Outcome": "wallclock.job.start",
    "embed": "wallclock.job.start",
}
__all__ = ["JobSettings", "Outcome", "embed"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_extra(_HOMES[name], f"wallclock.job.{name}", "embed"), name)
