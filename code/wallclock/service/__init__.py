"""`wallclock serve`: a worker that takes image URLs from a queue and sends results to callbacks."""

from typing import TYPE_CHECKING, Any

from wallclock.errors import import_extra

if TYPE_CHECKING:
    from wallclock.service.module import ItemError as ItemError
    from wallclock.service.module import Module as Module
    from wallclock.service.module import Request as Request
    from wallclock.service.modules import Embedding as Embedding
    from wallclock.service.modules import Pixels as Pixels

#: Name → its module, imported when the name is first used.
_HOMES = {
    "Embedding": "wallclock.service.modules",
    "ItemError": "wallclock.service.module",
    "Module": "wallclock.service.module",
    "Pixels": "wallclock.service.modules",
    "Request": "wallclock.service.module",
}
__all__ = ["Embedding", "ItemError", "Module", "Pixels", "Request"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_extra(_HOMES[name], f"wallclock.service.{name}", "queue"), name)
