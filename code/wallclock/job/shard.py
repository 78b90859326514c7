"""One shard of a job while it is filled: rows by position, vectors as they arrive."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from wallclock.check import ImageInfo
from wallclock.job.items import Items
from wallclock.job.part import Part
from wallclock.loader.batch import Batch, Failure
from wallclock.stages.pixels import Vectors

#: What so many runs have not reached is a failure.
RUNS = 3


@dataclass
class Shard:
    """Positions `first` to `last` of the list; all arrays are by position less `first`.

    A row is embedded, or a copy of another row (`twins`). What is neither has failed. So has, of
    those that are to have a vector (`kept`), the one whose vector is not finite, and its copies
    (`dropped`). `runs`: by position, how many runs have not reached an image before. `gave_up`:
    whether the reader did, before it had tried all of its images.
    """

    number: int
    first: int
    last: int
    dim: int
    runs: Mapping[int, int] = field(default_factory=dict)
    failures: list[Mapping[str, str]] = field(default_factory=list)
    unreached: list[Mapping[str, Any]] = field(default_factory=list)
    gave_up: bool = False
    #: Rows whose vectors have not arrived.
    waiting: int = 0
    #: Whether all its batches were loaded, and whether an image was read.
    loaded: bool = False
    any_read: bool = False

    def __post_init__(self) -> None:
        n = self.last - self.first
        self.vectors: Vectors = np.zeros((n, self.dim), np.float32)
        self.sha256: npt.NDArray[np.object_] = np.full(n, "", object)
        self.sizes: npt.NDArray[np.int32] = np.zeros((2, n), np.int32)
        self.kept: npt.NDArray[np.bool_] = np.zeros(n, bool)
        self.dropped: npt.NDArray[np.bool_] = np.zeros(n, bool)
        self.twins: dict[int, int] = {}

    @property
    def complete(self) -> bool:
        """Whether it can be committed."""
        return self.loaded and not self.waiting

    @property
    def lost(self) -> bool:
        """Whether the reader gave up before anything of it was reached: nothing is known of it."""
        return self.gave_up and not self.failures and not self.kept.any()

    @property
    def blind(self) -> bool:
        """Whether images failed, and all because they could not be read."""
        stages = {failure["stage"] for failure in self.failures}
        return stages == {"read"} and not self.any_read

    def add_failures(self, failures: Sequence[Failure]) -> int:
        """Note images that failed and those that were not reached; how many have failed."""
        unreached = [failure for failure in failures if "unreached" in failure]
        self.unreached += unreached
        self.failures += [failure for failure in failures if "unreached" not in failure]
        self.gave_up |= any(failure["unreached"] == "all" for failure in unreached)
        return len(failures) - len(unreached)

    def count_runs(self, items: Items) -> int:
        """Of what was not reached, note in how many runs; returns how many have failed for that."""
        left, ids = list[Mapping[str, Any]](), items.ids[self.first : self.last]
        for failure in self.unreached:
            position = self.first + pc.index(ids, failure["id"]).as_py()
            is_tried = failure["unreached"] != "untried"
            # A run in which the reader gave up counts for none.
            runs = self.runs.get(position, 0) + (is_tried and not self.gave_up)
            row = {name: failure[name] for name in ("id", "stage", "reason")}
            if runs < RUNS:
                left.append({**row, "runs": runs})
            else:
                self.failures.append({**row, "reason": f"{row['reason']}, in {runs} runs"})
        n_failed, self.unreached = len(self.unreached) - len(left), left
        return n_failed

    def describe(self, offsets: Sequence[int], infos: Sequence[ImageInfo]) -> None:
        """Note what rows' images are; they will have vectors."""
        rows = _rows(offsets)
        self.any_read = self.any_read or bool(offsets)
        self.sha256[rows] = [info.sha256 for info in infos]
        self.kept[rows] = True
        self.sizes[0, rows] = [info.width for info in infos]
        self.sizes[1, rows] = [info.height for info in infos]

    def arrived(self, offsets: Sequence[int], vectors: Vectors) -> None:
        """Take the vectors of embedded rows."""
        self.vectors[_rows(offsets)] = vectors
        self.waiting -= len(offsets)

    def drop_copies(self) -> list[int]:
        """Drop the copies of dropped rows, once all vectors have arrived; returns them."""
        copies = [offset for offset, twin in self.twins.items() if self.dropped[twin]]
        self.dropped[copies] = True
        return copies

    def part(self, items: Items) -> Part:
        """What to commit."""
        for offset, twin in self.twins.items():
            self.vectors[offset] = self.vectors[twin]
        kept = np.flatnonzero(self.kept & ~self.dropped)
        columns: dict[str, Any] = {
            "id": items.ids[self.first : self.last].take(kept),
            "sha256": self.sha256[kept],
            "width": self.sizes[0, kept],
            "height": self.sizes[1, kept],
            "version": items.versions[self.first : self.last].take(kept),
        }
        carried = items.carried.take(kept + self.first)
        failures = self.failures and self._with_versions(items)
        return Part(columns, self.vectors[kept], failures, carried, self.unreached)

    def _with_versions(self, items: Items) -> list[Mapping[str, str]]:
        columns = (column[self.first : self.last] for column in (items.ids, items.versions))
        versions = dict(zip(*(column.to_pylist() for column in columns), strict=True))
        return [{**row, "version": versions[row["id"]]} for row in self.failures]


def _rows(offsets: Sequence[int]) -> slice | list[int]:
    """Ascending offsets as an index; those in sequence as a slice, which numpy takes faster."""
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:
        return slice(offsets[0], offsets[-1] + 1)
    return list(offsets)


def subset(batch: Batch, rows: Sequence[int], images: npt.NDArray[Any]) -> Batch:
    """Those rows of a batch, as inference takes them."""
    ids = [batch.ids[row] for row in rows]
    return Batch(ids, [batch.positions[row] for row in rows], images[list(rows)])
