"""The list of images: a seeded sample of the catalogue, the same on every machine.

The catalogue is `images/metadata/images.csv.gz`: image_id, height, width, path (relative to either
set's folder). A set is sampled from the first so many of the 256
two-hex-digit folders. There, images rank by sha256("<seed>/<image_id>"), and a list of n is the
first n: a longer list keeps the shorter one, and no generator's version matters.

The catalogue is untrusted: it is unpacked within bounds, and a row whose id or path is invalid is
refused and counted.
"""

import gzip
import io
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harness.corpora.manifest import Item
from harness.digests import digest_of, sha256_bytes
from wallclock.errors import UserError

KEY = "images/metadata/images.csv.gz"
COLUMNS = "image_id,height,width,path"

#: The real catalogue has 398,212 rows: about 6 MB packed, 16 MB unpacked.
MAX_PACKED_BYTES = 64_000_000
MAX_UNPACKED_BYTES = 128_000_000
#: Share of refused rows above which the file is no catalogue.
MAX_REFUSED_SHARE = 0.01

#: The folder of each image set in the bucket.
FOLDERS = {"small_256": "images/small/", "original": "images/original/"}

#: An id, two sizes, a path of two hex digits, a slash and a plain name with one dot: none of it is
#: ever quoted, and it cannot leave the folder.
_ROW = re.compile(
    r"([0-9A-Za-z+_-]{1,64}),[1-9][0-9]{0,5},[1-9][0-9]{0,5},"
    r"([0-9a-f]{2}/[0-9A-Za-z+_-]{1,64}\.(?:jpg|png))"
)


@dataclass(frozen=True)
class Catalogue:
    """Ids and paths in the first `prefixes` folders, ranked; rows refused in any folder."""

    prefixes: int
    entries: tuple[Item, ...]
    n_refused: int
    first_refused: str

    def sample(self, image_set: str, n: int) -> tuple[Item, ...]:
        """The first `n` entries by rank.

        Raises:
            UserError: there are fewer; the message says how many.
        """
        available = len(self.entries)
        if n > available:
            raise UserError(
                f"{n:,} images of {image_set} are requested, the first {self.prefixes} of its 256 "
                f"prefixes hold {available:,}; set --n {available} or less, or "
                f"corpus.prefixes.{image_set} above {self.prefixes}"
            )
        return self.entries[:n]


def list_digest(rows: Iterable[Item]) -> str:
    """sha256 of the ids and paths, in order."""
    return digest_of([[row.id, row.path] for row in rows])


@lru_cache(maxsize=2)
def load(path: Path, prefixes: int, seed: int) -> Catalogue:
    """Read the catalogue: what is in the first `prefixes` of the 256 folders.

    Raises:
        UserError: its compression, columns or rows are not those of `images.csv.gz`.
    """
    entries: dict[str, Item] = {}
    paths: set[str] = set()
    n_rows = n_refused = 0
    first_refused = ""
    try:
        with gzip.open(path) as packed:
            # One byte more than allowed: a gzip bomb is not unpacked to its end.
            data = packed.read(MAX_UNPACKED_BYTES + 1)
        if len(data) > MAX_UNPACKED_BYTES:
            raise OSError(f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
        lines = (line.rstrip("\n") for line in io.StringIO(data.decode(), newline=None))
        header = next(lines, "")
        if header != COLUMNS:
            raise ValueError(f"its columns are {header[:80]!r}, not {COLUMNS!r}")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UserError(
            f"{KEY} cannot be read: {error}; check corpus.endpoint and corpus.bucket"
        ) from error
    for n_rows, line in enumerate(lines, 1):
        row = _ROW.fullmatch(line)
        # Names that differ by case are one file on some disks; real names are hexadecimal.
        if not row or row[1] in entries or row[2].lower() in paths:
            n_refused += 1
            first_refused = first_refused or f"row {n_rows + 1}: {line[:80]!r}"
        elif int(row[2][:2], 16) < prefixes:
            entries[row[1]] = Item(row[1], row[2])
            paths.add(row[2].lower())
    if n_refused > MAX_REFUSED_SHARE * n_rows:
        raise UserError(
            f"{KEY} is not ABO's catalogue: {n_refused:,} of {n_rows:,} rows have no valid id, "
            f"size and path; the first, {first_refused}"
        )
    ranked = sorted(entries.values(), key=lambda entry: sha256_bytes(f"{seed}/{entry.id}".encode()))
    return Catalogue(prefixes, tuple(ranked), n_refused, first_refused)
