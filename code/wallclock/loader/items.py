"""What a user gives as images, as sources: paths, URLs, bytes, files, dicts, rows, arrays.

An item is where an image is; or a pair of its id and that; or a pair of that and a label that is no
place; or a dict with `image`, perhaps `id` and `label`, and whatever else is to travel along.
"""

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wallclock.errors import UserError
from wallclock.fetch import folder
from wallclock.fetch.sources import Source
from wallclock.formats import KINDS

#: Keys of a dict or a row that may hold the image, in this order.
_IMAGE_KEYS = ("image", "img", "path", "url", "bytes")


class ParsedItem(NamedTuple):
    """An item taken apart; `id` and `label` are None where it has none."""

    id: str | None
    where: Any
    label: Any


def parse_item(item: Any, index: int) -> ParsedItem:
    """Take an item apart. Raises UserError: nothing in it is an image."""
    # First what most items are: a list of thumbnails has a million of them.
    if isinstance(item, str):
        return ParsedItem(None, item, None)
    if isinstance(item, Mapping):
        key = next((key for key in _IMAGE_KEYS if item.get(key) is not None), None)
        if key is None:
            keys = ", ".join(map(str, item)) or "nothing"
            raise UserError(f"item {index} has {keys}: give the image under the key image")
        name = item.get("id")
        return ParsedItem(None if name is None else str(name), item[key], item.get("label"))
    if isinstance(item, tuple | list) and len(item) == 2:
        first, second = item
        if isinstance(first, str) and _is_place(second):
            return ParsedItem(first, second, None)
        return ParsedItem(None, first, second)
    return ParsedItem(None, item, None)


def _is_place(value: Any) -> bool:
    """Whether it is a path, bytes, an open file, a Pillow image, an array, or a row."""
    if isinstance(value, str | bytes | bytearray | memoryview | os.PathLike | Mapping):
        return True
    is_array = hasattr(value, "__array_interface__") and getattr(value, "ndim", 3) > 1
    return hasattr(value, "read") or is_array


def as_source(item: Any, index: int) -> Source:
    """An item as the loader reads it. Raises UserError: it is no image."""
    name, where, _ = parse_item(item, index)
    if not isinstance(where, str | bytes):
        where = _readable(where, index)
    if name is None:
        name = where if isinstance(where, str) else f"{index}"
    return Source(name, where, item)


def _readable(where: Any, index: int) -> Any:
    """What is no path, URL or bytes yet, as one of them or as an open file. Raises UserError."""
    if isinstance(where, Mapping):  # as datasets stores an image that is not decoded
        where = where.get("bytes") or where.get("path")
    if isinstance(where, os.PathLike):
        return os.fspath(where)
    if isinstance(where, bytearray | memoryview):
        return bytes(where)
    if isinstance(where, str | bytes) or hasattr(where, "read"):
        return where
    return _encode(where, index)


def _encode(value: Any, index: int) -> bytes:
    """A Pillow image, or an array of uint8 (h, w), (h, w, 3) or (h, w, 4), as an image file.

    Uncompressed, so that it costs a copy and no more. An EXIF orientation stays.
    """
    from PIL import Image

    image = value
    if not isinstance(value, Image.Image):
        if not hasattr(value, "__array_interface__"):
            kind = type(value).__name__
            raise UserError(f"item {index} is a {kind}: give a path, a URL, bytes or a file")
        try:
            image = Image.fromarray(value)
        except (TypeError, ValueError) as error:
            shape = getattr(value, "shape", ())
            raise UserError(
                f"item {index} is an array of {getattr(value, 'dtype', '?')} {shape}: give uint8 "
                "(height, width), or 3 or 4 channels last"
            ) from error
    file = io.BytesIO()
    exif = image.getexif()
    if image.mode not in ("L", "LA", "P", "RGB", "RGBA", "I;16", "1"):
        image = image.convert("RGB")
    image.save(file, "PNG", compress_level=0, exif=exif)
    return file.getvalue()


class ListedItems(Sequence[Source]):
    """Items with random access, as sources that are made when they are asked for.

    Args:
        items: whatever has a length and takes an index.
        keeps: whether an item is kept with its source, so that no second access is needed for it.
    """

    def __init__(self, items: Any, *, keeps: bool = False) -> None:
        self.given, self.keeps = items, keeps

    def __len__(self) -> int:
        return len(self.given)

    def has_files(self) -> bool:
        """Whether an item is an open file, whose position several processes would share."""
        if self.keeps:
            return False
        return any(hasattr(parse_item(item, 0).where, "read") for item in self.given)

    def __getitem__(self, index: Any) -> Any:
        return as_source(self.given[index], index)


class FolderItems(ListedItems):
    """The images under a folder, found by content, at any depth; their ids are relative to it.

    Raises UserError: there is no such folder, or no image in it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.root = Path(path).expanduser()
        if not os.fspath(path) or not self.root.is_dir():
            given = os.fspath(path) or "''"
            raise UserError(
                f"{given} is no folder; give one, a .tar, a .parquet, or a list of paths, URLs, "
                "bytes or files"
            )
        names = sorted(folder.candidates(self.root), key=os.fsencode)
        if not names:
            raise UserError(f"no image under {self.root}: no {KINDS} file")
        super().__init__(names)

    def has_files(self) -> bool:
        """See `ListedItems`."""
        return False

    def __getitem__(self, index: Any) -> Any:
        name = self.given[index]
        return Source(folder.id_of(name), f"{self.root}/{name}", name)


def undecoded(dataset: Any) -> Any:
    """A dataset of Hugging Face whose image columns give bytes and paths, not decoded images.

    One with a transform of the user's own is as it was: that takes decoded images.
    Raises UserError: it is all splits of a dataset.
    """
    if isinstance(dataset, Mapping) and hasattr(dataset, "cast_column"):
        names = ", ".join(map(repr, dataset))
        raise UserError(f"a {type(dataset).__name__} has splits: give one of {names}")
    features = getattr(dataset, "features", None)
    if not features or not hasattr(dataset, "cast_column"):
        return dataset
    if (getattr(dataset, "format", None) or {}).get("type") == "custom":
        return dataset
    from datasets import Image  # type: ignore[import-not-found]

    for name, feature in features.items():
        if isinstance(feature, Image) and feature.decode:
            dataset = dataset.cast_column(name, Image(decode=False))
    return dataset


def iterate(items: Any, epoch: int = 0) -> Iterator[Any]:
    """The items of a stream, from its start; of one that is told its epoch, as datasets' is, that.

    Raises UserError: it cannot be iterated.
    """
    if hasattr(items, "set_epoch"):
        items.set_epoch(epoch)
    try:
        return iter(items)
    except TypeError:
        kind = type(items).__name__
        raise UserError(f"{kind}: give a folder, a list, or an iterable of images") from None
