"""The images of a job: three columns of Arrow, 100 MB a million, and no million objects."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import tee
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from wallclock.errors import SourceError, first_line
from wallclock.fetch.sources import Source
from wallclock.job.part import ROWS
from wallclock.job.records import Stream
from wallclock.job.texts import CHUNK
from wallclock.loader.items import Unreadable

#: The columns of every part; not every reader tells capitals from small letters.
_OWN = {"vector", *ROWS.names}
_FIRST = pa.array([0])


@dataclass(frozen=True)
class Items(Sequence[Source]):
    """The images of a job in order. Only `where` has the secrets of URLs.

    `ids`, `where`, `versions`: Arrow columns of string, binary and string. `root`, of a folder or a
    bucket, goes before each `where`. A version changes with the image's bytes: size and time of a
    file, a store's ETag, or the URL of a list; empty where nothing is known. `open_one` makes the
    source where it is neither path nor URL. `carried`: an Arrow table of a list's other columns.
    `others`: names of what was skipped. `faults`: by position why a row names no image.
    `origin`: the address that a list from elsewhere came from (`Limits.origin`). `is_whole`:
    whether the source has no other images, as far as is known. `stream`: reads what cannot be read
    in any order but slowly.
    """

    ids: Any
    where: Any
    versions: Any
    root: bytes = b""
    open_one: Callable[[str], Any] | None = None
    carried: Any = field(default_factory=lambda: pa.table({}))
    others: tuple[str, ...] = ()
    faults: Mapping[int, str] = field(default_factory=dict)
    origin: str | None = None
    is_whole: bool = True
    stream: Stream | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: Any) -> Any:
        identity = self.ids[index].as_py()
        if why := self.faults.get(index):
            return Source(identity, Unreadable(why))
        if self.stream:
            return next(self.read([index]))
        where = os.fsdecode(self.root + self.where[index].as_py())
        return Source(identity, self.open_one(where) if self.open_one else where)

    def read(self, positions: Iterable[int]) -> Iterator[Source]:
        """The images at positions, which a stream gives fastest where they ascend."""
        if not self.stream:
            yield from map(self.__getitem__, positions)
            return
        positions, again = tee(positions)
        good = (at for at in again if at not in self.faults)
        images = self.stream.images(self.where[at].as_py().decode() for at in good)
        for at in positions:
            yield self[at] if at in self.faults else Source(self.ids[at].as_py(), next(images))

    def take(self, rows: npt.NDArray[np.int64]) -> "Items":
        """Some of them, in this order."""
        columns = ("ids", "where", "versions", "carried")
        taken: dict[str, Any] = {name: getattr(self, name).take(rows) for name in columns}
        why = enumerate(map(self.faults.get, rows.tolist()) if self.faults else ())
        return replace(self, **taken, faults={at: fault for at, fault in why if fault})

    def with_values(self) -> "Items":
        """The same, but a version changes with the other columns, too, where there are any."""
        if not self.carried.num_columns:
            return self
        parts = []
        for at in range(0, len(self), CHUNK):
            columns = (column[at : at + CHUNK] for column in (self.versions, self.carried))
            texts = [
                version and f"{version} {blake2b(repr(row).encode(), digest_size=8).hexdigest()}"
                for version, row in zip(*(some.to_pylist() for some in columns), strict=True)
            ]
            parts.append(pa.array(texts, pa.string()))
        return replace(self, versions=pa.chunked_array(parts, pa.string()))


def check_columns(items: Items) -> None:
    """Raise SourceError where a carried column cannot be one of the dataset."""
    for name, column in zip(items.carried.column_names, items.carried.columns, strict=True):
        if name.lower() in _OWN:
            why = f"the list's column {name} has the name of a column of the dataset"
            raise SourceError(f"{why}; rename it in the list, or leave it out")
        try:
            column[:1].take(_FIRST)
            pq.write_table(pa.table([column[:1]], [name]), pa.BufferOutputStream())
            for at in range(0, len(column), CHUNK):
                column[at : at + CHUNK].to_pylist()
        except (pa.ArrowException, ValueError, OverflowError) as error:
            # Arrow takes no rows of some types, and Parquet has not all of them; Python has no such
            # date, or no such time zone.
            why = f"the list's column {name} ({column.type}) cannot be carried along"
            fix = "store it as text, or leave it out"
            raise SourceError(f"{why}: {first_line(error)}; {fix}") from error
