"""`wallclock serve`: a worker that takes image URLs from a queue and sends results to callbacks."""

from typing import TYPE_CHECKING, Any

from wallclock.errors import import_extra

if TYPE_CHECKING:
    from wallclock.service.interface import ItemError, Module, Request
    from wallclock.service.modules import Embedding, Pixels

__all__ = ["Embedding", "ItemError", "Module", "Pixels", "Request"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "modules" if name in ("Embedding", "Pixels") else "interface"
    module = import_extra(f"{__name__}.{home}", f"{__name__}.{name}", "queue")
    return getattr(module, name)
