"""Which vectors there are already, by the hash of an image's bytes."""

import struct
from binascii import unhexlify
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wallclock.errors import first_line
from wallclock.job.dataset import THREADS, Dataset

#: Where a vector is: number of the part and row in it as one number; -1: nowhere.
Places: TypeAlias = npt.NDArray[np.int64]
#: Of hashes their first 128 bits: (n, 2).
Words: TypeAlias = npt.NDArray[np.uint64]

_ROW_BITS = 32
#: The first 128 bits of a sha256 are the key: no one can make two images with the same ones.
_KEY = struct.Struct("=QQ")
#: Hexadecimal digits of a sha256.
_DIGITS = 64
#: Added rows are sorted once there are so many, and a sixteenth of all.
_LEAST_SORTED, _SHARE = 1 << 16, 16


class _Rows(NamedTuple):
    """Rows in the order of their hashes, and by hash those that were added since."""

    # The elements of a memoryview are numbers of Python, those of an array are not.
    first: Any
    second: Any
    places: Any
    recent: dict[bytes, int]


class HashIndex:
    """sha256 → place of the first vector of such bytes.

    A row takes 24 bytes, and as much again while rows are sorted. One thread adds, others may
    ask meanwhile.
    """

    def __init__(self) -> None:
        # Replaced as one: a reader has all rows from before or from after.
        empty = np.empty(0, np.uint64).data
        self._rows = _Rows(empty, empty, empty, {})

    def add(self, parts: Sequence[tuple[int, Words]]) -> None:
        """Add the rows of parts, in order: number and hashes. What is there keeps its place."""
        rows = self._rows
        n = len(rows.recent) + sum(len(words) for _, words in parts)
        if n < max(_LEAST_SORTED, len(rows.places) // _SHARE):
            for number, words in parts:
                keys = words.view(f"V{_KEY.size}")[:, 0].tolist()
                for key, place in zip(keys, places_of(number, len(words)).tolist(), strict=True):
                    rows.recent.setdefault(key, place)
            return
        recent = np.frombuffer(b"".join(rows.recent), np.uint64).reshape(-1, 2)
        places = [np.fromiter(rows.recent.values(), np.int64)]
        places += [places_of(number, len(words)) for number, words in parts]
        together = np.concatenate([recent, *(words for _, words in parts)])
        self._rows = _merged(rows, together, np.concatenate(places))

    def find(self, digest: bytes) -> int | None:
        """The place of the first vector of an image with this sha256 (32 bytes)."""
        first, second, places, recent = self._rows
        high, low = _KEY.unpack_from(digest)
        at = bisect_left(first, high)
        while at < len(first) and first[at] == high:
            if second[at] == low:
                place: int = places[at]
                return place
            at += 1
        return recent.get(digest[: _KEY.size])


def _merged(rows: _Rows, words: Words, places: Places) -> _Rows:
    """Those rows, and further ones; of equal hashes the first row is kept."""
    first = words[:, 0].copy()  # a column of its own sorts in three quarters of the time
    order = np.argsort(first, kind="stable")
    first, second, places = first[order], words[order, 1], places[order]
    if len(rows.first):
        at = np.searchsorted(rows.first, first, side="right")
        first = np.insert(rows.first, at, first)
        second = np.insert(rows.second, at, second)
        places = np.insert(rows.places, at, places)
    is_new = np.ones(len(first), bool)
    is_new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    if not is_new.all():
        first, second, places = first[is_new], second[is_new], places[is_new]
    return _Rows(first.data, second.data, places.data, {})


def read_hashes(dataset: Dataset, numbers: Sequence[int]) -> list[tuple[int, Words]]:
    """The hashes of parts, by number in this order. Raises DamagedPartError."""

    def read(number: int) -> tuple[int, Words]:
        try:
            return number, hash_words(dataset.rows(number, ["sha256"])["sha256"])
        except ValueError as error:
            raise dataset.damaged(number, dataset.row_file(number), first_line(error)) from error

    with ThreadPoolExecutor(THREADS) as pool:
        return [*pool.map(read, numbers)]


def places_of(number: int, n: int) -> Places:
    """The places of the n rows of a part."""
    return np.arange(n, dtype=np.int64) | number << _ROW_BITS


def by_part(places: Places) -> Iterator[tuple[int, npt.NDArray[np.intp], Places]]:
    """Places by part: its number, the indices into `places` that name it, the rows that they name.

    Nowhere is left out.
    """
    at = np.flatnonzero(places >= 0)
    at = at[np.argsort(places[at] >> _ROW_BITS, kind="stable")]
    numbers, starts = np.unique(places[at] >> _ROW_BITS, return_index=True)
    for number, indices in zip(numbers.tolist(), np.split(at, starts[1:]), strict=False):
        yield number, indices, places[indices] & ((1 << _ROW_BITS) - 1)


def hash_words(hexadecimal: Any) -> Words:
    """Of n sha256 as an Arrow column of text, the first 128 bits: (n, 2) uint64.

    Raises ValueError: one of them is no sha256.
    """
    digits = hexadecimal.cast(pa.binary(_DIGITS))  # ArrowInvalid, a ValueError: another length
    if digits.null_count:
        raise ValueError("a row without sha256")
    if isinstance(digits, pa.ChunkedArray):
        digits = digits.combine_chunks()
    text = memoryview(digits.buffers()[1] or b"")
    text = text[_DIGITS * digits.offset :][: _DIGITS * len(digits)]
    return np.frombuffer(unhexlify(text), np.uint64).reshape(-1, 4)[:, :2].copy()
