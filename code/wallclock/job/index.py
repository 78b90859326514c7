"""Which vectors there are already: by the hash of an image's bytes, or by its id and version."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wallclock.job.dataset import Dataset
from wallclock.job.listing import Items

#: Where a vector is: number of the part and row in it as one number; -1: nowhere.
Places: TypeAlias = npt.NDArray[np.int64]
_Keys: TypeAlias = npt.NDArray[np.uint64]

_ROW_BITS = 32
#: Of a sha256: 128 bits: two images with the same cannot be made.
_KEY_BYTES = 16


class HashIndex:
    """sha256 → place of the first vector of such bytes. 24 bytes an image, in sorted arrays.

    One thread adds, others may ask meanwhile.
    """

    def __init__(self) -> None:
        none = np.empty(0, np.uint64)
        self._sorted: tuple[_Keys, _Keys, _Keys] = (none, none, none)

    def add(self, number: int, hexadecimal: Sequence[str]) -> None:
        """Add the rows of a part, in order; what is there already keeps its place."""
        if not hexadecimal:
            return
        words = np.frombuffer(bytes.fromhex("".join(hexadecimal)), np.uint64).reshape(-1, 4)
        first, rows = np.unique(words[:, 0], return_index=True)
        keys, rest, places = self._sorted
        at = np.searchsorted(keys, first)
        new = np.ones(len(first), bool)
        if len(keys):
            new = keys[np.minimum(at, len(keys) - 1)] != first
        rows, at = rows[new], at[new]
        added = (
            first[new],
            words[rows, 1],
            rows.astype(np.uint64) | np.uint64(number << _ROW_BITS),
        )
        pairs = zip((keys, rest, places), added, strict=True)
        # Replaced as one: a reader has the arrays from before or from after.
        keys, rest, places = (np.insert(old, at, values) for old, values in pairs)
        self._sorted = keys, rest, places

    def find(self, digest: bytes) -> int | None:
        """The place of the vector of an image with this sha256 (32 bytes)."""
        keys, rest, places = self._sorted
        if not len(keys):
            return None
        first, second = np.frombuffer(digest[:_KEY_BYTES], np.uint64)
        at = int(np.searchsorted(keys, first))
        if at == len(keys) or keys[at] != first or rest[at] != second:
            return None
        return int(places[at])


@dataclass(frozen=True)
class Earlier:
    """An earlier dataset of the same model and recipe, to take vectors from."""

    dataset: Dataset
    hashes: HashIndex
    #: By position in the list: the place of an unchanged image's vector.
    unread: Places

    @staticmethod
    def open(dataset: Dataset, items: Items, *, rehash: bool, keep: bool = False) -> "Earlier":
        """Compare a list with an earlier dataset's; with `keep`, what has no thumbnail is read."""
        hashes = HashIndex()
        keys: list[Any] = []
        places: list[Places] = []
        kept = dataset.with_thumbnails() if keep else set()
        for number in dataset.committed():
            rows = dataset.rows(number, ("id", "sha256", "version"))
            hashes.add(number, rows["sha256"].to_pylist())
            if keep and number not in kept:
                continue
            keys += _keys(rows["id"], rows["version"]).chunks
            places.append(np.arange(len(rows), dtype=np.int64) | number << _ROW_BITS)
        unread = np.full(len(items), -1, np.int64)
        if places and not rehash:
            old = pa.chunked_array(keys, pa.string())
            rows = pc.index_in(_keys(items.ids, items.versions), value_set=old)
            has_version = pc.not_equal(items.versions, "")
            unchanged = pc.and_(pc.is_valid(rows), has_version).to_numpy()
            unread[unchanged] = np.concatenate(places)[pc.fill_null(rows, 0).to_numpy()[unchanged]]
        return Earlier(dataset, hashes, unread)


def _keys(ids: Any, versions: Any) -> Any:
    return pc.binary_join_element_wise(ids, versions, "\0")


def by_part(places: Places) -> Iterator[tuple[int, npt.NDArray[np.intp], Places]]:
    """Places by part: its number, the indices into `places` that name it, the rows that they name.

    Nowhere is left out.
    """
    numbers = places >> _ROW_BITS
    somewhere = places >= 0
    for number in np.unique(numbers[somewhere]).tolist():
        at = np.flatnonzero(numbers == number)
        yield number, at, places[at] & ((1 << _ROW_BITS) - 1)
