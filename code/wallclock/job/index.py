"""Which vectors there are already: by the hash of an image's bytes, or by its id and version."""

import sys
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
from wallclock.job.texts import CHUNK
from wallclock.job.unchanged import Places, Unchanged

_Words: TypeAlias = npt.NDArray[np.uint64]

_ROW_BITS = 32
#: Words of 64 bits of a sha256, and those that are the key: two images with the same 128 bits
#: cannot be made.
_WORDS, _KEY_WORDS = 4, 2
_DIGITS = 64
#: A run is so many times as long as the next one, at least: few runs to search, few merges. One of
#: so many rows is merged no more: it no longer fits into a processor's cache.
_FACTOR, _LONGEST = 2, 1 << 20
#: Bits of the filter for a row, at least: one of as many questions as this goes on to the runs.
_FILTER_BITS = 16
#: Parts that are read at once, and parts that are sorted together.
_THREADS, _PARTS = 16, 64


class _Run(NamedTuple):
    """Rows, sorted by `first` and then by age: two words of the hash, and the place of each."""

    first: _Words
    second: _Words
    places: Places


class _Filter:
    """A bit for each beginning that a hash may have: where it is not set, no row has that hash.

    Bloom, "Space/time trade-offs in hash coding with allowable errors", 1970, with one function:
    the first bits of a sha256 are as good as any. A row takes 2 to 4 bytes.
    """

    def __init__(self, rows: int) -> None:
        slots = max(3, (_FILTER_BITS * rows - 1).bit_length())
        self._bits = np.zeros(1 << slots - 3, np.uint8)
        self._view = self._bits.data  # its elements are numbers of Python
        self._shift = 64 - slots
        #: Rows that it has room for.
        self.room = (1 << slots) // _FILTER_BITS

    def add(self, first: _Words) -> None:
        """Set the bits of the first words of hashes."""
        for at in range(0, len(first), CHUNK):
            slots = first[at : at + CHUNK] >> np.uint64(self._shift)
            bits = np.left_shift(1, slots & np.uint64(7)).astype(np.uint8)
            np.bitwise_or.at(self._bits, (slots >> np.uint64(3)).astype(np.intp), bits)

    def may_have(self, first: int) -> bool:
        """Whether a row may have a hash with this first word."""
        slot = first >> self._shift
        return bool(self._view[slot >> 3] >> (slot & 7) & 1)


class HashIndex:
    """sha256 → place of the first vector of such bytes.

    Sorted runs, each at least twice as long as the next (O'Neil et al., "The log-structured
    merge-tree", 1996), until they are long: n rows cost O(n). A row takes 26 to 28 bytes. Most
    images are new, and a filter in front of the runs says so; a copy is looked for in all runs, of
    which there are 20 for 20 million rows. One thread adds, others may ask meanwhile.
    """

    def __init__(self) -> None:
        # From the oldest on. Replaced as one: a reader has all runs from before or from after.
        self._runs: tuple[_Run, ...] = ()
        self._filter = _Filter(0)

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
        together = np.concatenate(words) if words else np.empty((0, _KEY_WORDS), np.uint64)
        if not len(together):
            return
        new = _Run(together[:, 0], together[:, 1], np.concatenate(places))
        runs, merged = [*self._runs], [new]
        while runs and len(runs[-1].first) < min(_FACTOR * _rows(merged), _LONGEST):
            merged.insert(0, runs.pop())
        runs.append(_merged(merged))
        self._add_to_filter(new.first, runs)
        self._runs = tuple(runs)

    def _add_to_filter(self, first: _Words, runs: Sequence[_Run]) -> None:
        """Set the bits of new rows before they can be found; `runs` has them and all others."""
        rows = _rows(runs)
        if rows <= self._filter.room:
            self._filter.add(first)
            return
        larger = _Filter(rows)
        for run in runs:
            larger.add(run.first)
        self._filter = larger

    def add_parts(self, dataset: Dataset, numbers: Sequence[int]) -> None:
        """Add parts of a dataset, in this order. Raises DamagedPartError."""
        for parts in read_parts(dataset, numbers):
            self.add_together([(part.number, part.words) for part in parts])

    def find(self, digest: bytes) -> int | None:
        """The place of the first vector of an image with this sha256 (32 bytes)."""
        if not self._filter.may_have(int.from_bytes(digest[:8], sys.byteorder)):
            return None
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
    def open(dataset: Dataset, items: Items, *, keep: bool = False) -> "Earlier":
        """Compare a list with an earlier dataset's; with `keep`, what has no thumbnail is read."""
        hashes, unchanged = HashIndex(), Unchanged(items.ids, items.versions)
        kept = dataset.with_thumbnails() if keep else set()
        for parts in read_parts(dataset, dataset.committed(), ("id", "version")):
            hashes.add_together([(part.number, part.words) for part in parts])
            for number, words, rows in parts:
                if not keep or number in kept:
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


def _rows(runs: Sequence[_Run]) -> int:
    return sum(len(run.first) for run in runs)


def _merged(runs: Sequence[_Run]) -> _Run:
    """All runs as one, the last of them unsorted; of equal words the oldest row comes first."""
    first = np.concatenate([run.first for run in runs])
    # Timsort, which finds the runs. A column at a time: less memory.
    order = np.argsort(first, kind="stable")
    first = first[order]
    second = np.concatenate([run.second for run in runs])[order]
    return _distinct(_Run(first, second, np.concatenate([run.places for run in runs])[order]))


def _distinct(run: _Run) -> _Run:
    """Without rows that repeat the one before them."""
    repeats = (run.first[1:] == run.first[:-1]) & (run.second[1:] == run.second[:-1])
    if not repeats.any():
        return run
    kept = np.concatenate(([True], ~repeats))
    return _Run(run.first[kept], run.second[kept], run.places[kept])
