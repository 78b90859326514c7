"""What a user gives as images, as sources; `open_images` says what an item may be.

Anything else, or a damaged item, is a source that fails when it is read.
"""

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wallclock.errors import ImageError, UserError, image_errors
from wallclock.fetch import folder
from wallclock.fetch.sources import Source
from wallclock.fetch.urls import is_url
from wallclock.formats import KINDS
from wallclock.stages.decode import Picture

#: Keys of a dict or a row that may hold the image. Data comes before a path or a URL, and then the
#: first of these.
IMAGE_KEYS = ("image", "img", "bytes", "jpg", "jpeg", "png", "webp", "path", "url")
#: Items of a sequence that are looked at for one of a known kind.
_LOOKED_AT = 100


class Record(dict[str, Any]):
    """A sample of a tar, or a row of a table.

    `file`: where it lies. `failure`: why it has no image; empty: it has one. `skipped`: what lies
    before it, or behind the last one, and is no record. `behind`: its shard, and the row after it.
    """

    behind: tuple[int, int] = 0, 0

    def __init__(self, fields: Any, file: str, failure: str = "") -> None:
        super().__init__(fields)
        self.file: str = file
        self.failure: str = failure
        self.skipped: list[str] = []


@dataclass(frozen=True)
class Unreadable:
    """Stands for the bytes of an item that has none. `unknown`: it is of no kind that is read."""

    reason: str
    unknown: bool = False

    def __call__(self) -> bytes:
        """Raise ImageError."""
        raise ImageError("read", self.reason)


def parse_item(item: Any) -> tuple[str | None, Any, Any]:
    """An item's id, where the image is, and its label; None for what it has not."""
    if isinstance(item, str):
        return None, item, None
    if isinstance(item, Mapping):
        found = [value for key in IMAGE_KEYS if (value := item.get(key)) is not None]
        where = found[0] if len(found) == 1 else min(found, key=_preference, default=None)
        name, label = item.get("id"), item.get("label")
        label = item.get("cls") if label is None else label
        return None if name is None else str(name), where, label
    if isinstance(item, tuple | list) and len(item) == 2:
        first, second = item
        if isinstance(first, str) and (isinstance(second, os.PathLike | str) or _is_data(second)):
            return first, second, None
        return None, first, second
    return None, item, None


def _preference(value: Any) -> int:
    """0 for an image's data, 1 for where it is, 2 for anything else."""
    if isinstance(value, Mapping):
        return 0 if value.get("bytes") is not None else 1 if value.get("path") else 2
    if isinstance(value, str | os.PathLike):
        return 1
    return 0 if _is_data(value) or _is_array(value) else 2


def _is_data(value: Any) -> bool:
    return isinstance(value, bytes | bytearray | memoryview) or hasattr(value, "read")


def _is_array(value: Any) -> bool:
    # Of the type: a Pillow image decodes its file and copies its pixels when it is asked for it.
    return hasattr(type(value), "__array_interface__")


def as_source(item: Any, index: int) -> Source:
    """An item as the loader reads it."""
    # First what most items are: a list of thumbnails has a million of them.
    if isinstance(item, str):
        return Source(item, item, item)
    name, where, label = parse_item(item)
    if isinstance(item, tuple | list):
        where = _checked_pair(name, where, label)
    if not isinstance(where, str | bytes):
        where = _readable(where, item, index)
    if name is None:
        name = where if isinstance(where, str) else f"{index}"
    return Source(name, where, item)


def _checked_pair(name: str | None, where: Any, label: Any) -> Any:
    """`where` of a pair; or, where the pair was meant otherwise, what says so."""
    if not isinstance(where, str) or is_url(where) or folder.is_image_name(where):
        return where
    if name is not None and (folder.is_image_name(name) or is_url(name) or os.path.isfile(name)):
        rule = f"the first of two texts is the id; write {{'image': {name!r}, 'label': {where!r}}}"
    elif isinstance(label, Mapping) or _is_array(label):
        rule = f"the second of a pair is its label; write {{'id': {where!r}, 'image': …}}"
    else:
        return where
    reason = f"{where!r} is not a file: {rule}"
    return where if os.path.isfile(where) else Unreadable(reason, unknown=True)


def _readable(where: Any, item: Any, index: int) -> Any:
    """What is no path, URL or bytes yet, as one of them, as a file, or as what returns bytes."""
    if isinstance(item, Record) and item.failure:
        return Unreadable(item.failure)
    if isinstance(where, Mapping):  # as datasets stores an image that is not decoded
        data = where.get("bytes")
        where = where.get("path") or None if data is None else data
    if isinstance(where, os.PathLike):
        return os.fsdecode(where)
    if isinstance(where, bytearray | memoryview):
        return bytes(where)
    if isinstance(where, str | bytes | Unreadable) or hasattr(where, "read"):
        return where
    if _is_array(where):
        return Picture(where)
    reason, unknown = "has no image", where is not None
    if unknown:
        reason = f"is a {type(where).__name__}: give a path, a URL, bytes or a file"
    elif isinstance(item, Mapping) and not any(key in item for key in IMAGE_KEYS):
        keys, unknown = ", ".join(map(str, item)) or "nothing", True
        reason = f"has {keys}: give the image under the key image"
    return Unreadable(f"item {index} {reason}", unknown)


class Names(Sequence[Any]):
    """Names of files in one buffer, which forks share: no reference to a name writes to it.

    With `numbers`, each is in a pair with the number of the folder that it lies in.
    """

    numbers: Mapping[str, int] | None = None

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._bytes, self._ends = bytearray(), array("Q", [0])
        for name in names:
            self.append(name)

    def append(self, name: str) -> None:
        """Add one."""
        self._bytes += name.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: Any) -> Any:
        start, end = self._ends[index], self._ends[index + 1]
        name = self._bytes[start:end].decode("utf-8", "surrogatepass")
        return name if self.numbers is None else (name, self.numbers[name.partition("/")[0]])


class ListedItems(Sequence[Source]):
    """Items with random access, as sources that are made when they are asked for.

    `keeps`: whether an item is kept with its source, so that no second access is needed for it.
    Raises UserError: none of the first items is of a kind that is read.
    """

    classes: Sequence[str] = ()
    skipped: Sequence[str] = ()

    def __init__(self, items: Any, *, keeps: bool = False) -> None:
        self.given: Any = items
        self.keeps: bool = keeps
        self._item = image_errors("read", type(items).__name__, lambda index: items[index])
        places = (self[at].where for at in range(min(len(self), _LOOKED_AT)))
        if len(self) and all(isinstance(at, Unreadable) and at.unknown for at in places):
            raise UserError(self[0].where.reason)

    def __len__(self) -> int:
        return len(self.given)

    def has_files(self) -> bool:
        """Whether an item is an open file, whose position several processes would share."""
        items = () if self.keeps or isinstance(self.given, Names) else self.given
        return any(hasattr(parse_item(item)[1], "read") for item in items)

    def __getitem__(self, index: Any) -> Any:
        try:
            item = self._item(index)
        except ImageError as error:
            return Source(f"{index}", Unreadable(error.reason))
        return as_source(item, index)


class FolderItems(ListedItems):
    """The images under a folder, found by content, at any depth; their ids are relative to it.

    With `labels`, an item is a pair of its name and the number of its subfolder, of which `classes`
    has the names, sorted. `skipped`: what is no image, is hidden, or is in no class. Raises
    UserError: there is no such folder, or no image in it.
    """

    def __init__(self, path: str | os.PathLike[str], *, labels: bool = False) -> None:
        self.root: Path = Path(os.path.expanduser(path))
        if not os.fspath(path) or not self.root.is_dir():
            fix = "give one, a .tar, a .parquet, or a list of paths, URLs, bytes or files"
            raise UserError(f"{os.fspath(path) or repr('')} is not a folder; {fix}")
        listing = folder.FolderListing(self.root)
        names, outside = Names(), list[str]()
        for name in listing:
            (outside if labels and "/" not in name else names).append(name)
        if listing.unreadable:  # each becomes a failure, in its place
            names = Names(sorted([*names, *listing.unreadable], key=os.fsencode))
        if not names:
            place = "in a folder under" if outside else "under"
            raise UserError(f"no image {place} {self.root}: no {KINDS} file")
        self.skipped: list[str] = [folder.id_of(name) for name in (*outside, *listing.others)]
        if labels:
            tops = sorted({name.partition("/")[0] for name in names})
            self.classes: list[str] = [folder.id_of(top) for top in tops]
            names.numbers = {top: number for number, top in enumerate(tops)}
        super().__init__(names)

    def __getitem__(self, index: Any) -> Any:
        given = self.given[index]
        name = given if isinstance(given, str) else given[0]
        return Source(folder.id_of(name), f"{self.root}/{name}", given)


def undecoded(dataset: Any) -> Any:
    """A dataset of Hugging Face whose image columns give bytes and paths, not decoded images.

    One with a transform of the user's own stays, which takes decoded images; so does a column with
    a mode, to which `datasets` converts. Raises UserError: it is all splits of a dataset.
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
        if isinstance(feature, Image) and feature.decode and feature.mode is None:
            dataset = dataset.cast_column(name, Image(decode=False))
    return dataset


def iterate(items: Any, epoch: int = 0) -> Iterator[Any]:
    """The items of a stream from its start, told its epoch. Raises UserError: it is none."""
    if hasattr(items, "set_epoch"):
        items.set_epoch(epoch)
    try:
        return iter(items)
    except TypeError:
        kind = type(items).__name__
        raise UserError(f"{kind}: give a folder, a list, or an iterable of images") from None
