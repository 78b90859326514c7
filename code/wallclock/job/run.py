"""A list of images → parts of vectors: the loop, from the loader over inference to the commits.

Batches never cross the border of a shard, so that a vector's bits do not depend on where an earlier
start was killed. A shard is written in a thread of its own while the next one is filled.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from wallclock.check import ImageInfo
from wallclock.errors import UserError, describe
from wallclock.infer.finite import FiniteRows, not_finite
from wallclock.infer.inference import Inference, open_inference
from wallclock.infer.network import Embedder
from wallclock.job.items import Items
from wallclock.job.part import Part
from wallclock.job.plan import Job, Plan, PlannedOrder
from wallclock.loader.batch import Batch, Failure
from wallclock.loader.iteration import open_stream
from wallclock.loader.opener import LoaderOptions, open_loader
from wallclock.loader.order import Place
from wallclock.loader.threads import LendingLoader
from wallclock.stages.pixels import Vectors

#: What so many runs have not reached is a failure.
RUNS = 3
#: Images done so far, of all, what limits.
Progress = Callable[[int, int, str], None]


@dataclass
class Tally:
    """What a run has done so far, and what its main thread waited for, in seconds."""

    images: int = 0
    copied: int = 0
    n_failed: int = 0
    #: JPEGs that the native module left to another decoder.
    fallbacks: int = 0
    #: Whether the reader gave up, and why the last image was not reached.
    gave_up: bool = False
    last_unreached: str = ""
    #: Shards that were not committed, as nothing of them could be read.
    withheld: list[int] = field(default_factory=list)
    wait_s: dict[str, float] = field(default_factory=lambda: {"loader": 0.0, "sink": 0.0})
    wall_s: float = 0.0
    #: What would make the next run faster, in words.
    faster: str = ""
    #: CPU seconds of the main thread and of the thread that commits.
    main_cpu_s: float = 0.0
    commit_cpu_s: float = 0.0

    @property
    def limited_by(self) -> str:
        """What took the main thread longest: loader, forward or sink."""
        parts = {**self.wait_s, "forward": self.wall_s - sum(self.wait_s.values())}
        return max(parts, key=lambda name: parts[name])


@dataclass
class Shard:
    """One while it is filled: positions `first` to `last`; arrays are by position less `first`.

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


class Run:
    """One pass over a plan's shards. `sure`: those committed even if nothing of them was read."""

    def __init__(
        self, job: Job, plan: Plan, processes: int = 1, sure: Collection[int] | None = None
    ) -> None:
        self._job, self._plan, self._processes, self._sure = job, plan, processes, sure
        #: Of the shard that is being loaded: sha256 → row.
        self._recent: dict[str, int] = {}
        self._open: deque[Shard] = deque()
        self._submitted: deque[tuple[Shard, Sequence[int]]] = deque()
        self._commits: deque[Future[None]] = deque()
        self.tally: Tally = Tally()

    def loader(self) -> LendingLoader:
        """The loader of the plan's batches; to be entered before CUDA starts."""
        job = self._job
        options = LoaderOptions.of(job.model.input_px, job.recipe, limits=job.limits, hashes=True)
        if not job.items.stream:
            return open_loader(job.items, self._plan, options, self._processes)
        order = PlannedOrder(self._plan.batch_size, 0, 0, 0, 1, drop_last=False, plan=self._plan)
        positions = (position for batch in self._plan for position in batch)
        loader, _ = open_stream(lambda _: job.items.read(positions), order, options, Place(0, 0), 1)
        return loader

    def run(self, loader: Iterator[Batch], embedder: Embedder, progress: Progress) -> Tally:
        """Embed and commit until all is on the disk, or the reader gave up. Raises UserError."""
        tally, began, cpu_began = self.tally, time.perf_counter(), time.thread_time()
        job, plan, n = self._job, self._plan, len(self._job.items)
        done = n - plan.size(*plan.missing)
        self._dtype = embedder.labels["dtype"]
        self._finite = FiniteRows(self._dtype)
        inference = open_inference(embedder, self._arrived)
        with ExitStack() as stack:
            pool = ThreadPoolExecutor(1, "commit")
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            for number, batches in plan.shards():
                some = plan.parts[number]
                shard = Shard(number, some.start, some.stop, job.model.dim, job.runs)
                self._open.append(shard)
                for _ in range(batches):
                    waited = time.perf_counter()
                    batch = next(loader)
                    tally.wait_s["loader"] += time.perf_counter() - waited
                    self._add(shard, batch, inference)
                    done += len(batch.positions) + len(batch.failures)
                    tally.wall_s = time.perf_counter() - began
                    progress(done, n, tally.limited_by)
                    self._commit_complete(pool)
                tally.n_failed += shard.count_runs(job.items)
                self._check_failures(shard)
                self._recent.clear()
                shard.loaded = True
                self._commit_complete(pool)
                if tally.gave_up:
                    break
            inference.finish()
            self._commit_complete(pool)
            while self._commits:
                self._commits.popleft().result()
        tally.wall_s = time.perf_counter() - began
        tally.main_cpu_s = time.thread_time() - cpu_began
        progress(done, n, tally.limited_by)
        return tally

    def _add(self, shard: Shard, batch: Batch, inference: Inference) -> None:
        """Take a loaded batch: embed what no earlier row of the shard has."""
        rows: Sequence[int] = range(len(batch.positions))
        offsets: Sequence[int] = [position - shard.first for position in batch.positions]
        shard.describe(offsets, batch.extras.infos)
        if self._job.deduplicate:
            rows = [row for row in rows if not self._copied(shard, offsets[row])]
            offsets = [offsets[row] for row in rows]
        self.tally.images += len(batch.positions)
        self.tally.fallbacks += batch.extras.fallbacks
        self.tally.n_failed += shard.add_failures(batch.failures)
        self._check_failures(shard)
        self.tally.gave_up |= shard.gave_up
        if shard.unreached:
            self.tally.last_unreached = describe(shard.unreached[-1])
        if rows:
            shard.waiting += len(rows)
            self._submitted.append((shard, offsets))
            if len(rows) < len(batch.ids):
                ids = [batch.ids[row] for row in rows]
                positions = [batch.positions[row] for row in rows]
                batch = Batch(ids, positions, batch.images[rows])
            inference.submit(batch)

    def _copied(self, shard: Shard, offset: int) -> bool:
        """Whether an earlier row of the shard will have the row's vector, and note which."""
        twin = self._recent.setdefault(shard.sha256[offset], offset)
        if twin == offset:
            return False
        shard.twins[offset] = twin
        self.tally.copied += 1
        return True

    def _check_failures(self, shard: Shard) -> None:
        most = self._job.max_failures
        if most is not None and self.tally.n_failed > most:
            last = describe(shard.failures[-1])
            raise UserError(f"more than max_failures={most} images failed; the last, {last}")

    def _arrived(self, ids: Sequence[str], vectors: Vectors) -> None:
        shard, offsets = self._submitted.popleft()
        shard.arrived(list(offsets), vectors)
        dropped = [offsets[row] for row in self._finite.failed(vectors)]
        shard.dropped[dropped] = True
        self._fail(shard, dropped)

    def _fail(self, shard: Shard, dropped: Sequence[int]) -> None:
        error = not_finite(self._dtype)
        for offset in dropped:
            name = self._job.items.ids[shard.first + offset].as_py()
            shard.failures.append({"id": name, "stage": error.stage, "reason": error.reason})
            self.tally.images -= 1
            self.tally.n_failed += 1
            self._check_failures(shard)

    def _commit_complete(self, pool: ThreadPoolExecutor) -> None:
        """Write the shards that are complete, one at a time."""
        while self._open and self._open[0].loaded and not self._open[0].waiting:
            waited = time.perf_counter()
            while self._commits:
                self._commits.popleft().result()
            self.tally.wait_s["sink"] += time.perf_counter() - waited
            shard = self._open.popleft()
            if shard.gave_up and not shard.failures and not shard.kept.any():
                continue  # nothing of it was reached
            if self._sure is not None and shard.blind and shard.number not in self._sure:
                self.tally.withheld.append(shard.number)
                self.tally.n_failed -= len(shard.failures)
                continue
            self._fail(shard, shard.drop_copies())
            self._commits.append(pool.submit(self._commit, shard))
        if self._commits and self._commits[0].done():
            self._commits.popleft().result()

    def _commit(self, shard: Shard) -> None:
        began = time.thread_time()
        job, number = self._job, shard.number
        part = shard.part(job.items)
        if number in job.replaced:
            job.dataset.replace(number, job.items.ids[shard.first : shard.last], part)
        else:
            job.dataset.commit(number, part)
        self.tally.commit_cpu_s += time.thread_time() - began
