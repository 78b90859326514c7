"""Which images of a list an earlier dataset has, unchanged: the same id, and the same version."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

#: Where a vector is: number of the part and row in it as one number; -1: nowhere.
Places: TypeAlias = npt.NDArray[np.int64]

#: Images behind the last match among which a part is looked for: so many, and twice its rows.
_NEAR = 1024


class Unchanged:
    """Matches rows of an earlier dataset with a list, part by part.

    List and dataset usually have one order. So a part is looked for behind the last match; what is
    not there, at the end among all images that are left. Memory: 8 bytes per image, and for what is
    left at the end its ids and versions, twice, with a hash table.

    Args:
        ids, versions: Arrow columns of the list. An image without a version has changed.
    """

    def __init__(self, ids: Any, versions: Any) -> None:
        self._ids, self._versions = ids, versions
        self._places = np.full(len(ids), -1, np.int64)
        self._behind = 0
        self._left: list[tuple[Any, Places]] = []

    def add(self, ids: Any, versions: Any, places: Places) -> None:
        """Match the rows of a part: Arrow columns, and where their vectors are."""
        first, n = self._behind, len(ids)
        if self._ids[first : first + n].equals(ids) and self._versions[first : first + n].equals(
            versions
        ):
            self._places[first : first + n] = places
            self._behind += n
            return
        near, keys = slice(first, first + 2 * n + _NEAR), _keys(ids, versions)
        at, rows = _matches(_keys(self._ids[near], self._versions[near]), keys)
        self._places[first + at] = places[rows]
        if len(at):
            self._behind = first + int(at[-1]) + 1
        left = np.ones(n, bool)
        left[rows] = False
        if left.any():
            self._left.append((keys.filter(pa.array(left)), places[left]))

    def places(self) -> Places:
        """By position in the list: the place of an unchanged image's vector, or -1."""
        if self._left and (self._places < 0).any():
            left = self._places < 0
            mask = pa.array(left)
            chunks = [chunk for keys, _ in self._left for chunk in keys.chunks]
            old = pa.chunked_array(chunks, pa.string())
            at, rows = _matches(_keys(self._ids.filter(mask), self._versions.filter(mask)), old)
            places = np.concatenate([places for _, places in self._left])
            self._places[np.flatnonzero(left)[at]] = places[rows]
        self._left.clear()
        self._places[pc.equal(self._versions, "").to_numpy()] = -1
        return self._places


def _keys(ids: Any, versions: Any) -> Any:
    return pc.binary_join_element_wise(ids, versions, "\0")


def _matches(keys: Any, old: Any) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Indices into `keys` whose key is in `old`, ascending; and the indices into `old`."""
    rows = pc.fill_null(pc.index_in(keys, value_set=old), -1).to_numpy()
    at = np.flatnonzero(rows >= 0)
    return at, rows[at]
