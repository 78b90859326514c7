"""A list of images → parts of vectors: the loop, from the loader over inference to the commits.

Batches never cross the border of a shard, so that a vector's bits do not depend on where an earlier
start was killed; the loader knows nothing of shards and keeps running across their borders. A shard
is written in a thread of its own while the next one is filled: at most two are in memory.

Images of equal bytes are embedded once: a row is dropped if an earlier position of the list has the
same sha256. Workers leave out the decoding where they can know that already, which depends on
timing; which rows are dropped does not.
"""

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from wallclock.corpus.sources import Inspected
from wallclock.engines.batch import Batch
from wallclock.engines.inference import Inference, open_inference
from wallclock.engines.loaders import Loader
from wallclock.engines.pipeline import DeviceStages
from wallclock.engines.processes import ForkedLoader
from wallclock.engines.threads import ThreadLoader
from wallclock.engines.unlisted import fork_sources, open_sources
from wallclock.engines.writer import Writer
from wallclock.errors import UserError, describe
from wallclock.job import thumbnails
from wallclock.job.dataset import Dataset, Vectors
from wallclock.job.index import Earlier, HashIndex
from wallclock.job.shard import Shard, subset
from wallclock.job.sources import Items
from wallclock.spec import ModelSpec, Recipe

#: Images done so far, of all, what limits.
Progress = Callable[[int, int, str], None]


class Plan(Sequence[Sequence[int]]):
    """The batches of the shards that are missing, in order; computed when indexed.

    `unread`: by position, -1 where the image is to be read.
    """

    def __init__(
        self, n: int, shard: int, batch: int, done: Sequence[int], unread: Any = None
    ) -> None:
        self._n, self._shard, self._batch, self._unread = n, shard, batch, unread
        self._last: tuple[int, list[int]] = -1, []
        self.missing = sorted(set(range(-(-n // shard))) - set(done))
        counts = [-(-len(self.to_read(number)) // batch) for number in self.missing]
        self._starts = [0, *accumulate(counts)]

    def bounds(self, number: int) -> tuple[int, int]:
        """First and last position of a shard, the last not included."""
        return number * self._shard, min((number + 1) * self._shard, self._n)

    def to_read(self, number: int) -> Sequence[int]:
        """The positions of a shard whose images are read."""
        first, last = self.bounds(number)
        if self._unread is None:
            return range(first, last)
        if self._last[0] != number:  # asked once for each batch, shard after shard
            unread = np.flatnonzero(self._unread[first:last] < 0) + first
            self._last = number, unread.tolist()
        return self._last[1]

    def images_to_read(self) -> int:
        """The images of all batches."""
        return sum(len(self.to_read(number)) for number in self.missing)

    def shards(self) -> Iterator[tuple[int, int]]:
        """Every missing shard with the number of its batches."""
        for number, (begin, end) in zip(self.missing, pairwise(self._starts), strict=True):
            yield number, end - begin

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        at = bisect_right(self._starts, index) - 1
        begin = (index - self._starts[at]) * self._batch
        return self.to_read(self.missing[at])[begin : begin + self._batch]


@dataclass
class Tally:
    """What a run has done so far, and what its main thread waited for, in seconds."""

    images: int = 0
    copied: int = 0
    unread: int = 0
    n_failed: int = 0
    wait_s: dict[str, float] = field(default_factory=lambda: {"loader": 0.0, "sink": 0.0})
    wall_s: float = 0.0

    @property
    def limited_by(self) -> str:
        """What took the main thread longest: loader, forward or sink."""
        parts = {**self.wait_s, "forward": self.wall_s - sum(self.wait_s.values())}
        return max(parts, key=lambda name: parts[name])


@contextmanager
def _timed(tally: Tally, what: str) -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        tally.wait_s[what] += time.perf_counter() - began


@dataclass(frozen=True)
class Job:
    """All that embeds any shard of a list, in whatever process.

    `deduplicate`: images of equal bytes are embedded once, `across` all shards; or, in a run of one
    shard, in that one. `keep`: thumbnails are made; then every image that is read is decoded.
    """

    items: Items
    dataset: Dataset
    model: ModelSpec
    recipe: Recipe
    shard: int
    earlier: Earlier | None = None
    deduplicate: bool = True
    across: bool = True
    keep: bool = False
    max_failures: int | None = None

    def plan(self, only: int | None = None) -> Plan:
        """The batches of the shards that are missing; or of one of them."""
        n = len(self.items)
        done = set(self.dataset.committed())
        if only is not None:
            done |= set(range(-(-n // self.shard))) - {only}
        unread = self.earlier.unread if self.earlier else None
        return Plan(n, self.shard, self.recipe.batch_size, [*done], unread)


class Run:
    """One pass over the shards of a plan. `processes`: that load."""

    def __init__(self, job: Job, plan: Plan, processes: int = 1) -> None:
        self._items, self._dataset, self._plan = job.items, job.dataset, plan
        self._model, self._recipe, self._earlier = job.model, job.recipe, job.earlier
        self._deduplicates, self._across = job.deduplicate, job.deduplicate and job.across
        self._also = thumbnails.thumbnail if job.keep else None
        self._max_failures, self._processes = job.max_failures, processes
        self._looks_for_copies = job.deduplicate or job.earlier is not None
        self._hashes = HashIndex()
        #: Of the shard that is being loaded: sha256 → row.
        self._recent: dict[bytes, int] = {}
        self._open: deque[Shard] = deque()
        self._submitted: deque[tuple[Shard, Sequence[int]]] = deque()
        self._commits: deque[Future[None]] = deque()
        self.tally = Tally()

    def loader(self) -> ThreadLoader | ForkedLoader:
        """The loader of the plan's batches; to be entered before CUDA starts."""
        asks = (self._deduplicates or self._earlier) and not self._also
        options: dict[str, Any] = {
            **{"size": self._model.input_px, "recipe": self._recipe},
            **{"workers": self._recipe.workers, "also": self._also},
            "known": self._known if asks else None,
            "hashes": True,
        }
        if self._processes > 1:
            return fork_sources(self._items, self._plan, self._processes, **options)
        return open_sources(self._items, self._plan, **options)

    def run(self, loader: Loader, stages: DeviceStages, progress: Progress) -> Tally:
        """Embed and commit; returns when all is on the disk.

        Raises UserError: more images failed than may, or the disk is full.
        """
        tally, began = self.tally, time.perf_counter()
        committed = set(self._dataset.committed()) if self._across else set()
        n, shard_of = len(self._items), self._plan.bounds
        done = n - sum(last - first for first, last in map(shard_of, self._plan.missing))
        inference = open_inference(stages, self._recipe, Writer(self._arrived, lambda: None))
        with ExitStack() as stack:
            pool = ThreadPoolExecutor(1, "commit")
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            before = -1
            for number, batches in self._plan.shards():
                for whole in sorted(committed & set(range(before + 1, number))):
                    self._index(whole, self._dataset.rows(whole, ["sha256"])["sha256"].to_pylist())
                before = number
                shard = Shard(number, *shard_of(number), self._model.dim)
                self._open.append(shard)
                done += self._reuse(shard)
                for _ in range(batches):
                    with _timed(tally, "loader"):
                        batch = next(loader)
                    self._add(shard, batch, inference)
                    done += len(batch.positions) + len(batch.known) + len(batch.failures)
                    tally.wall_s = time.perf_counter() - began
                    progress(done, n, tally.limited_by)
                    self._commit_complete(pool)
                self._index(number, shard.hashes())
                self._recent.clear()
                shard.loaded = True
                self._commit_complete(pool)
            inference.finish()
            self._commit_complete(pool)
            while self._commits:
                self._commits.popleft().result()
        tally.wall_s = time.perf_counter() - began
        progress(n, n, tally.limited_by)
        return tally

    def _known(self, digest: bytes) -> bool:
        """Whether an image of an earlier position has these bytes. Called in the workers.

        Other processes know what this one did when they were forked, and decode the later copies.
        """
        if self._earlier and self._earlier.hashes.find(digest) is not None:
            return True
        found = digest in self._recent or self._hashes.find(digest) is not None
        return self._deduplicates and found

    def _index(self, number: int, hashes: Sequence[str]) -> None:
        if self._across:
            self._hashes.add(number, hashes)

    def _reuse(self, shard: Shard) -> int:
        """Take over what has not changed since the earlier dataset; how many they are."""
        if self._earlier is None:
            return 0
        places = self._earlier.unread[shard.first : shard.last]
        shard.reuse(places, self._earlier.dataset)
        if self._also:
            shard.made |= thumbnails.of(self._earlier.dataset, places)
        unread = int((places >= 0).sum())
        self.tally.unread += unread
        return unread

    def _add(self, shard: Shard, batch: Batch, inference: Inference) -> None:
        """Take a loaded batch: embed what no earlier position and no earlier dataset has."""
        rows: Sequence[int] = range(len(batch.positions))
        positions, items = batch.positions, batch.inspected
        if batch.known:
            found = [*zip(rows, positions, items, strict=True)]
            found += [(-1, at, item) for at, item in batch.known]
            rows, positions, items = zip(*sorted(found, key=lambda one: one[1]), strict=True)
        offsets: Sequence[int] = [at - shard.first for at in positions]
        shard.inspected(offsets, items)
        if self._looks_for_copies:
            found_in = zip(rows, offsets, items, strict=True)
            fresh = [(row, at) for row, at, item in found_in if not self._copied(shard, at, item)]
            rows, offsets = zip(*fresh, strict=True) if fresh else ((), ())
        made = (
            (at, image) for at, image in zip(batch.positions, batch.made, strict=False) if image
        )
        shard.made.update((at - shard.first, image) for at, image in made)
        shard.failures += batch.failures
        self.tally.images += len(positions)
        self.tally.n_failed += len(batch.failures)
        self._check_failures(batch)
        if rows:
            whole = len(rows) == len(batch.ids)
            shard.waiting += len(rows)
            self._submitted.append((shard, offsets))
            inference.submit(batch if whole else subset(batch, rows, batch.images), 0)
            inference.spans.clear()
            inference.writer.written.clear()

    def _copied(self, shard: Shard, offset: int, item: Inspected) -> bool:
        """Whether the row's vector is one that there is, and note where; or that it will be."""
        digest = bytes.fromhex(item.sha256)
        self.tally.copied += 1
        own = self._hashes.find(digest)  # empty, unless other shards are looked at
        earlier = self._earlier.hashes.find(digest) if self._earlier else None
        if own is not None:
            shard.own[offset] = own
        elif earlier is not None:
            shard.earlier[offset] = earlier
        elif self._deduplicates and digest in self._recent:
            shard.twins[offset] = self._recent[digest]
        else:
            self.tally.copied -= 1
            self._recent[digest] = offset
            return False
        return True

    def _check_failures(self, batch: Batch) -> None:
        most = self._max_failures
        if most is not None and self.tally.n_failed > most:
            last = describe(batch.failures[-1])
            raise UserError(f"more than max_failures={most} images failed; the last, {last}")

    def _arrived(self, ids: Sequence[str], vectors: Vectors) -> None:
        shard, offsets = self._submitted.popleft()
        shard.arrived(list(offsets), vectors)

    def _commit_complete(self, pool: ThreadPoolExecutor) -> None:
        """Write the shards that are complete, one at a time: a copy may lie in the one before."""
        while self._open and self._open[0].complete:
            with _timed(self.tally, "sink"):
                while self._commits:
                    self._commits.popleft().result()
            self._commits.append(pool.submit(self._commit, self._open.popleft()))
        if self._commits and self._commits[0].done():
            self._commits.popleft().result()

    def _commit(self, shard: Shard) -> None:
        earlier = self._earlier.dataset if self._earlier else self._dataset
        part = shard.part(self._items, self._dataset, earlier)
        if self._also:
            part.thumbnails = partial(thumbnails.write, shard, self._items)
        self._dataset.commit(shard.number, part)
