"""Which vectors there are already: by the hash of an image's bytes, or by its id and version."""

from binascii import unhexlify
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wallclock.errors import first_line
from wallclock.job.dataset import Dataset
from wallclock.job.listing import Items
from wallclock.job.unchanged import Places, Unchanged

_Words: TypeAlias = npt.NDArray[np.uint64]

_ROW_BITS = 32
#: Words of 64 bits of a sha256, and those that are the key: two images with the same 128 bits
#: cannot be made.
_WORDS, _KEY_WORDS = 4, 2
_DIGITS = 64
#: A run is so many times as long as the next one, at least: few runs to search, few merges.
_FACTOR = 8
#: Parts that are read at once, and parts that are sorted together.
_THREADS, _PARTS = 16, 64


class _Run(NamedTuple):
    """Rows, sorted by `first` and then by age: two words of the hash, and the place of each."""

    first: _Words
    second: _Words
    places: Places


class HashIndex:
    """sha256 → place of the first vector of such bytes.

    Sorted runs, each at least eight times as long as the next (O'Neil et al., "The log-structured
    merge-tree", 1996): n rows, added b at a time, cost O(n log(n / b)). A row takes 24 bytes, a
    million 24 MB, and as much again while the longest runs are merged. One thread adds, others may
    ask meanwhile.
    """

    def __init__(self) -> None:
        # From the oldest on. Replaced as one: a reader has all runs from before or from after.
        self._runs: tuple[_Run, ...] = ()

    def add(self, number: int, hexadecimal: Any) -> None:
        """Add the rows of a part, in order; what is there already keeps its place.

        Args:
            hexadecimal: the sha256 of each row as text: an Arrow column, or a sequence.

        Raises ValueError: one of them is no sha256.
        """
        self.add_together([(number, hash_words(hexadecimal))])

    def add_together(self, parts: Sequence[tuple[int, _Words]]) -> None:
        """Add several parts, each as `add` does, in one step; their hashes as `hash_words`."""
        words = [part for _, part in parts]
        places = [places_of(number, len(part)) for number, part in parts]
        if not sum(map(len, words)):
            return
        runs = [*self._runs, _sorted(np.concatenate(words), np.concatenate(places))]
        while len(runs) > 1 and len(runs[-2].first) < _FACTOR * len(runs[-1].first):
            newer, older = runs.pop(), runs.pop()
            runs.append(_merged(older, newer))
        self._runs = tuple(runs)

    def add_parts(self, dataset: Dataset, numbers: Sequence[int]) -> None:
        """Add parts of a dataset, in this order. Raises DamagedPartError."""
        for parts in read_parts(dataset, numbers):
            self.add_together([(part.number, part.words) for part in parts])

    def find(self, digest: bytes) -> int | None:
        """The place of the first vector of an image with this sha256 (32 bytes)."""
        first, second = np.frombuffer(digest, np.uint64, _KEY_WORDS)
        for firsts, seconds, places in self._runs:
            at = int(firsts.searchsorted(first))
            while at < len(firsts) and firsts[at] == first:
                if seconds[at] == second:
                    return int(places[at])
                at += 1
        return None


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
        hashes, unchanged = HashIndex(), Unchanged(items.ids, items.versions)
        kept = dataset.with_thumbnails() if keep else set()
        for parts in read_parts(dataset, dataset.committed(), ("id", "version")):
            hashes.add_together([(part.number, part.words) for part in parts])
            for number, words, rows in parts:
                if not rehash and (not keep or number in kept):
                    unchanged.add(rows["id"], rows["version"], places_of(number, len(words)))
        return Earlier(dataset, hashes, unchanged.places())


class _PartRows(NamedTuple):
    """Of a part: its number, the hashes as `hash_words`, and columns as an Arrow table."""

    number: int
    words: _Words
    rows: Any


def read_parts(
    dataset: Dataset, numbers: Sequence[int], columns: Sequence[str] = ()
) -> Iterator[list[_PartRows]]:
    """Parts of a dataset in this order, some at a time. Raises DamagedPartError."""

    def read(number: int) -> _PartRows:
        rows = dataset.rows(number, ("sha256", *columns))
        try:
            return _PartRows(number, hash_words(rows["sha256"]), rows)
        except ValueError as error:
            raise dataset.damaged(number, dataset.row_file(number), first_line(error)) from error

    with ThreadPoolExecutor(_THREADS) as pool:
        for at in range(0, len(numbers), _PARTS):
            yield list(pool.map(read, numbers[at : at + _PARTS]))


def places_of(number: int, n: int) -> Places:
    """The places of the n rows of a part."""
    return np.arange(n, dtype=np.int64) | number << _ROW_BITS


def by_part(places: Places) -> Iterator[tuple[int, npt.NDArray[np.intp], Places]]:
    """Places by part: its number, the indices into `places` that name it, the rows that they name.

    Nowhere is left out.
    """
    numbers = places >> _ROW_BITS
    somewhere = places >= 0
    for number in np.unique(numbers[somewhere]).tolist():
        at = np.flatnonzero(numbers == number)
        yield number, at, places[at] & ((1 << _ROW_BITS) - 1)


def hash_words(hexadecimal: Any) -> _Words:
    """Of n sha256 as text, the first 128 bits: (n, 2) uint64.

    Raises ValueError: one of them is no sha256.
    """
    if isinstance(hexadecimal, Sequence):
        hexadecimal = pa.chunked_array([pa.array(hexadecimal, pa.string())])
    n = len(hexadecimal)
    digits = hexadecimal.cast(pa.binary(_DIGITS))  # ArrowInvalid, a ValueError: another length
    if digits.null_count:
        raise ValueError("a row without sha256")
    words = np.empty((n, _KEY_WORDS), np.uint64)
    end = 0
    for chunk in digits.chunks:
        first, end = end, end + len(chunk)
        text = memoryview(chunk.buffers()[1])[_DIGITS * chunk.offset :][: _DIGITS * len(chunk)]
        words[first:end] = np.frombuffer(unhexlify(text), np.uint64).reshape(-1, _WORDS)[
            :, :_KEY_WORDS
        ]
    return words


def _sorted(words: _Words, places: Places) -> _Run:
    order = np.argsort(words[:, 0], kind="stable")
    return _distinct(_Run(words[order, 0], words[order, 1], places[order]))


def _merged(older: _Run, newer: _Run) -> _Run:
    """Both runs as one; of equal words the older row comes first."""
    at = older.first.searchsorted(newer.first, side="right") + np.arange(len(newer.first))
    is_older = np.ones(len(older.first) + len(newer.first), bool)
    is_older[at] = False

    def merged(old: npt.NDArray[Any], new: npt.NDArray[Any]) -> npt.NDArray[Any]:
        both = np.empty(len(is_older), old.dtype)
        both[at], both[is_older] = new, old
        return both

    first, second = merged(older.first, newer.first), merged(older.second, newer.second)
    return _distinct(_Run(first, second, merged(older.places, newer.places)))


def _distinct(run: _Run) -> _Run:
    """Without rows that repeat the one before them."""
    repeats = (run.first[1:] == run.first[:-1]) & (run.second[1:] == run.second[:-1])
    if not repeats.any():
        return run
    kept = np.concatenate(([True], ~repeats))
    return _Run(run.first[kept], run.second[kept], run.places[kept])
