"""An item that a user gave, taken apart: its id, where its image is, its label."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from wallclock.errors import UserError

#: Keys of a dict or a row that may hold the image, in this order.
_IMAGE_KEYS = ("image", "img", "path", "url", "bytes")


class GivenItem(NamedTuple):
    """An item taken apart: its id, or None; where the image is; and its label, or None."""

    id: str | None
    where: Any
    label: Any


def parse_item(item: Any, index: int) -> GivenItem:
    """Take an item apart. Raises UserError: nothing in it is an image."""
    # First what most items are: a list of thumbnails has a million of them.
    if isinstance(item, str):
        return GivenItem(None, item, None)
    if isinstance(item, Mapping):
        key = next((key for key in _IMAGE_KEYS if item.get(key) is not None), None)
        if key is None:
            keys = ", ".join(map(str, item)) or "nothing"
            raise UserError(f"item {index} has {keys}: give the image under the key image")
        name = item.get("id")
        return GivenItem(None if name is None else str(name), item[key], item.get("label"))
    if isinstance(item, tuple | list) and len(item) == 2:
        first, second = item
        if isinstance(first, str) and _is_place(second):
            return GivenItem(first, second, None)
        return GivenItem(None, first, second)
    return GivenItem(None, item, None)


def label_of(item: Any) -> Any:
    """The label of an item as given; None: it has none."""
    return parse_item(item, 0).label


def _is_place(value: Any) -> bool:
    return isinstance(value, str | bytes | bytearray | memoryview | os.PathLike) or _is_object(
        value
    )


def _is_object(value: Any) -> bool:
    """Whether it is an open file, a Pillow image, an array, or an undecoded row's image."""
    is_array = hasattr(value, "__array_interface__") and getattr(value, "ndim", 3) > 1
    return hasattr(value, "read") or is_array or isinstance(value, Mapping)
