"""A saved position: what `state_dict` returns, and what `load_state_dict` refuses."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from wallclock.errors import UserError
from wallclock.loader.items import ListedItems, parse_item
from wallclock.loader.order import Order, Place
from wallclock.loader.stream import StreamOrder

#: Ids that are hashed at a time.
_HASHED = 4096


def saved(at: Place, end: int, order: Order | StreamOrder, data: str) -> dict[str, Any]:
    """As plain data: where to go on, the epoch before which to end, and of which images."""
    return {**at._asdict(), "end": end, "rank": order.rank, "order": order.shared(), "data": data}


def loaded(state: Any, ours: Order | StreamOrder, data: str) -> tuple[Place, int]:
    """The place and the end of a state. Raises UserError: it is of other images or settings."""
    keys, order = {*Place._fields, "end", "rank", "order", "data"}, ours.shared()
    if not isinstance(state, Mapping) or not keys <= {*state}:
        raise UserError("this is no state of open_images: give what state_dict() returned")
    there = state["order"]
    if not isinstance(there, Mapping) or set(there) != set(order):
        raise UserError("this state is of another kind of items: a list, or a stream")
    differing = [name for name in order if there[name] != order[name]]
    if differing:
        was = ", ".join(f"{name}={there[name]!r}" for name in differing)
        raise UserError(f"this state is of another iteration: there {was}"[:160])
    if state["data"] != data:
        raise UserError("this state is of other images, or of the same ones in another order")
    at = Place(*(state[name] for name in Place._fields))
    # Another rank has shards of its own, which are read from the first to the same batch.
    return at if state["rank"] == ours.rank else Place(*at[:3]), state["end"]


def digest_of(items: ListedItems | Sequence[str]) -> str:
    """A digest of the ids in order; empty where an item would have to be loaded for its id."""
    if isinstance(items, ListedItems):
        if items.keeps:
            return str(getattr(items.given, "_fingerprint", ""))
        items = items.given
    digest = hashlib.sha256()
    for first in range(0, len(items), _HASHED):
        ids = items[first : first + _HASHED]
        if not all(isinstance(item, str) for item in ids):
            ids = [_id_of(item, first + at) for at, item in enumerate(ids)]
        digest.update("\0".join((*ids, "")).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


def _id_of(item: Any, position: int) -> str:
    name, where, _ = parse_item(item)
    if name is not None:
        return name
    return os.fsdecode(where) if isinstance(where, str | os.PathLike) else f"{position}"
