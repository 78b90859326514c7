"""A list of images → parts of vectors: the loop, from the loader over inference to the commits.

Batches never cross the border of a shard, so that a vector's bits do not depend on where an earlier
start was killed. A shard is written in a thread of its own while the next one is filled: at most
two are in memory. Images of a shard with equal bytes are embedded once.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from wallclock.errors import UserError, describe
from wallclock.infer.finite import FiniteRows, not_finite
from wallclock.infer.inference import Inference, open_inference
from wallclock.infer.network import Embedder
from wallclock.job.plan import Job, Plan, PlannedOrder
from wallclock.job.shard import Shard, subset
from wallclock.loader.batch import Batch
from wallclock.loader.iteration import open_stream
from wallclock.loader.opener import LoaderOptions, open_loader
from wallclock.loader.order import Place
from wallclock.loader.threads import LendingLoader
from wallclock.stages.pixels import Vectors

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
    #: CPU seconds of the main thread and of the thread that commits.
    main_cpu_s: float = 0.0
    commit_cpu_s: float = 0.0

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
                    with _timed(tally, "loader"):
                        batch = next(loader)
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
            is_all = len(rows) == len(batch.ids)
            shard.waiting += len(rows)
            self._submitted.append((shard, offsets))
            inference.submit(batch if is_all else subset(batch, rows, batch.images))

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
        while self._open and self._open[0].complete:
            with _timed(self.tally, "sink"):
                while self._commits:
                    self._commits.popleft().result()
            shard = self._open.popleft()
            if shard.lost:
                continue
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
