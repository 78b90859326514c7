"""What a job embeds, and which batches of it are still to be made."""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.job.dataset import THREADS, UNREACHED, Dataset
from wallclock.job.index import Reused
from wallclock.job.listing import Items
from wallclock.loader.order import LazyBatches
from wallclock.recipe import Limits, ModelSpec, Recipe


class Plan(LazyBatches):
    """The batches of the shards that are missing, in order; computed when indexed.

    `unread`: by position, -1 where the image is to be read. `again`: by shard beyond those of the
    list, the positions that an earlier part did not reach, and in how many runs.
    """

    def __init__(
        self,
        n: int,
        shard: int,
        batch: int,
        done: Sequence[int],
        unread: Any = None,
        again: Mapping[int, Mapping[int, int]] | None = None,
    ) -> None:
        self._n, self._shard = n, shard
        self._unread, self.again = unread, again or {}
        self.batch_size = batch
        self._last: tuple[int, list[int]] = -1, []
        self._listed = -(-n // shard)
        self.missing = sorted(set(range(self._listed)) - set(done)) + sorted(self.again)
        self._to_read = self._count()
        counts = -(-self._to_read // batch)
        self._starts: list[int] = [0, *np.cumsum(counts).tolist()]

    def bounds(self, number: int) -> tuple[int, int]:
        """First and last position of a shard, the last not included."""
        first = number % self._listed * self._shard
        return first, min(first + self._shard, self._n)

    def size(self, *numbers: int) -> int:
        """The images of shards."""
        return sum(len(self.again.get(number, range(*self.bounds(number)))) for number in numbers)

    def to_read(self, number: int) -> Sequence[int]:
        """The positions of a shard whose images are read."""
        first, last = self.bounds(number)
        if self._unread is None and number not in self.again:
            return range(first, last)
        if self._last[0] != number:  # asked once for each batch, shard after shard
            if again := self.again.get(number):
                unread = np.array(sorted(again))
            else:
                unread = np.flatnonzero(self._unread[first:last] < 0) + first
            self._last = number, unread.tolist()
        return self._last[1]

    def images_to_read(self) -> int:
        """The images of all batches."""
        return int(self._to_read.sum())

    def shards(self) -> Iterator[tuple[int, int]]:
        """Every missing shard with the number of its batches."""
        for number, (begin, end) in zip(self.missing, pairwise(self._starts), strict=True):
            yield number, end - begin

    def __len__(self) -> int:
        return self._starts[-1]

    def batch(self, index: int) -> Sequence[int]:
        """See `LazyBatches`."""
        at = bisect_right(self._starts, index) - 1
        number = self.missing[at]
        begin = (index - self._starts[at]) * self.batch_size
        return self.to_read(number)[begin : begin + self.batch_size]

    def _count(self) -> npt.NDArray[np.int64]:
        numbers = np.array(self.missing[: len(self.missing) - len(self.again)], np.int64)
        firsts, ends = numbers * self._shard, np.minimum((numbers + 1) * self._shard, self._n)
        images: npt.NDArray[np.int64] = ends - firsts
        if self._unread is not None:
            before = np.concatenate(([0], np.cumsum(self._unread < 0)))
            images = before[ends] - before[firsts]
        again = [self.size(number) for number in sorted(self.again)]
        return np.concatenate((images, np.array(again, np.int64)))


@dataclass(frozen=True)
class Job:
    """All that embeds any shard of a list, in whatever process.

    `deduplicate`: images of equal bytes are embedded once, `across` all shards, or else in each
    shard. `keep`: thumbnails are made; then every image that is read is decoded.
    """

    items: Items
    dataset: Dataset
    model: ModelSpec
    recipe: Recipe
    shard: int
    earlier: Reused | None = None
    deduplicate: bool = True
    across: bool = True
    keep: bool = False
    max_failures: int | None = None
    limits: Limits = field(default_factory=Limits)

    def plan(self, only: Collection[int] | None = None) -> Plan:
        """The batches of the shards that are missing; `only` of these shards."""
        n, done = len(self.items), set(self.dataset.committed())
        listed = -(-n // self.shard)
        again = {number + listed for number in done & self.dataset.with_files(UNREACHED)} - done
        if only is not None:
            done |= set(range(listed)) - set(only)
            again &= set(only)
        with ThreadPoolExecutor(THREADS) as pool:
            rows = pool.map(self.dataset.unreached, (number - listed for number in again))
            runs = [{row["position"]: row["runs"] for row in some} for some in rows]
        for number, some in zip(again, runs, strict=True):
            if max(some, default=0) >= n:
                name, why = f"{UNREACHED}/part-{number - listed:05d}.jsonl", f"there are {n} images"
                raise self.dataset.damaged(number - listed, name, f"position={max(some)}: {why}")
        left = {number: some for number, some in zip(again, runs, strict=True) if some}
        unread = self.earlier.unread if self.earlier else None
        return Plan(n, self.shard, self.recipe.batch_size, [*done], unread, left)
