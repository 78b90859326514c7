"""Which images: a seeded sample of the catalogue, the same list on every machine.

The catalogue is `images/metadata/images.csv.gz`: image_id, height, width, path (relative to either
set's folder; the sizes are the originals'). A set is sampled from the first so many of the 256
two-hex-digit folders. There, images rank by sha256("<seed>/<image_id>"), and a list of n is the
first n: more images keep the first ones, and no generator's version matters.

Nothing in the catalogue is trusted: it is unpacked within bounds, and a row whose id or path is not
plainly one is refused and counted.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from wallclock.errors import UserError
from wallclock.files import digest_of, sha256_file

KEY = "images/metadata/images.csv.gz"
COLUMNS = ["image_id", "height", "width", "path"]

#: The real catalogue is 398,212 rows: about 6 MB packed, 16 MB unpacked.
MAX_PACKED_BYTES = 64_000_000
MAX_UNPACKED_BYTES = 256_000_000
#: Rows that may be refused before the file is taken for something else.
MAX_REFUSED_SHARE = 0.01

#: The folder of each image set inside the bucket.
FOLDERS = {"small_256": "images/small/", "original": "images/original/"}

_ID = re.compile(r"[0-9A-Za-z+_-]{1,64}")
#: Two lower-case hex digits, a slash, a plain name: no dots but one, so nothing climbs out.
_PATH = re.compile(r"([0-9a-f]{2})/[0-9A-Za-z+_-]{1,64}\.(?:jpg|png)")
_SIZE = re.compile(r"[1-9][0-9]{0,5}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the catalogue; the size is the original's, in pixels."""

    id: str
    path: str
    width: int
    height: int


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The entries in the first so many folders, and how many rows of the whole file were refused."""

    entries: tuple[Entry, ...]
    n_rows: int
    n_refused: int
    first_refused: str


@dataclass(frozen=True)
class Sample:
    """The first n of a set by rank, and where they were drawn from."""

    entries: tuple[Entry, ...]
    available: int
    digest: str


def sample(catalogue: Catalogue, image_set: str, prefixes: int, seed: int, n: int) -> Sample:
    """The first `n` images of a set by rank.

    Raises:
        UserError: the folders hold fewer; the message says how many.
    """
    available = len(catalogue.entries)
    if n > available:
        raise UserError(
            f"{n:,} images of {image_set} are asked for, the first {prefixes} of its 256 prefixes hold {available:,}; "
            f"set --n {available} or less, or corpus.prefixes.{image_set} above {prefixes}"
        )
    chosen = _ranked(catalogue, seed)[:n]
    return Sample(chosen, available, list_digest([(entry.id, entry.path) for entry in chosen]))


def list_digest(pairs: Sequence[tuple[str, str]]) -> str:
    """sha256 of the ids and paths, in order."""
    return digest_of([list(pair) for pair in pairs])


@lru_cache(maxsize=2)
def _ranked(catalogue: Catalogue, seed: int) -> tuple[Entry, ...]:
    return tuple(
        sorted(
            catalogue.entries,
            key=lambda entry: hashlib.sha256(f"{seed}/{entry.id}".encode()).digest(),
        )
    )


def load(path: Path, prefixes: int) -> Catalogue:
    """Read the catalogue, keeping what lies in the first `prefixes` of the 256 folders.

    Raises:
        UserError: it is not what `images.csv.gz` is, in its packing, its columns or its rows.
    """
    return _load(path, sha256_file(path), prefixes)


@lru_cache(maxsize=2)
def _load(path: Path, digest: str, prefixes: int) -> Catalogue:
    kept: dict[str, Entry] = {}
    paths: set[str] = set()
    n_rows = n_refused = 0
    first_refused = ""
    last = f"{prefixes - 1:02x}"
    try:
        for row in _rows(path):
            n_rows += 1
            entry = _entry(row)
            # Two names that differ by case are one file on some disks; the real names are all hexadecimal.
            if entry is None or entry.id in kept or entry.path.lower() in paths:
                n_refused += 1
                first_refused = first_refused or f"row {n_rows + 1}: {','.join(row)[:80]!r}"
            elif entry.path[:2] <= last:
                kept[entry.id] = entry
                paths.add(entry.path.lower())
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"{KEY} cannot be read: {error}; check corpus.endpoint and corpus.bucket"
        ) from error
    if n_refused > MAX_REFUSED_SHARE * n_rows:
        raise UserError(
            f"{KEY} is not ABO's catalogue: {n_refused:,} of {n_rows:,} rows have no valid id, size and path; "
            f"the first, {first_refused}"
        )
    return Catalogue(tuple(kept.values()), n_rows, n_refused, first_refused)


def _rows(path: Path) -> Iterator[list[str]]:
    with (
        gzip.open(path) as packed,
        io.TextIOWrapper(io.BufferedReader(_Bounded(packed)), encoding="utf-8", newline="") as text,
    ):
        reader = csv.reader(text, strict=True)
        header = next(reader, [])
        if header != COLUMNS:
            raise csv.Error(f"its columns are {','.join(header)[:80]!r}, not {','.join(COLUMNS)!r}")
        yield from reader


def _entry(row: list[str]) -> Entry | None:
    if len(row) != len(COLUMNS):
        return None
    identity, height, width, path = row
    fits = (
        _ID.fullmatch(identity)
        and _SIZE.fullmatch(height)
        and _SIZE.fullmatch(width)
        and _PATH.fullmatch(path)
    )
    return Entry(identity, path, int(width), int(height)) if fits else None


class _Bounded(io.RawIOBase):
    """A stream that refuses to yield more than the catalogue can be: a gzip of zeros stops early."""

    def __init__(self, source: gzip.GzipFile) -> None:
        self._source = source
        self._left = MAX_UNPACKED_BYTES

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fill the buffer from the source."""
        view = memoryview(buffer)  # type: ignore[arg-type]
        data = self._source.read(len(view))
        self._left -= len(data)
        if self._left < 0:
            raise OSError(f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
        view[: len(data)] = data
        return len(data)
