"""Engine `threads`: worker threads decode and resize straight into batch buffers that are reused.

The libraries release the GIL while they work, so threads share what processes would have to copy:
a batch is never pickled, moved or collated. Queues written in C are all that the threads share,
and a lock around pictures so large that two of them decoded would matter.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from queue import SimpleQueue
from threading import Lock
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.corpus.manifest import LARGE_PIXELS, Item, Manifest
from wallclock.engines import pipeline
from wallclock.engines.batch import Batch, Marks, Positions
from wallclock.engines.joinable_thread import JoinableThread
from wallclock.engines.loaders import Loader
from wallclock.engines.pipeline import Feed, InPlaceStages
from wallclock.engines.ring import Chunk, Ring, buffers_for, compact
from wallclock.errors import ImageError
from wallclock.spec import ModelSpec, Recipe
from wallclock.stages.decode import DecodeMany
from wallclock.thread_counts import set_threads, usable_cores

#: Decoded bytes in flight are bounded: of pictures this large, one at a time in a process.
_one_large = Lock()
_unlimited = nullcontext()

#: Stages of one image inside a worker, in order; `resize` normalizes too where the host does.
IMAGE_STAGES = ("read", "decode", "resize")


@dataclass
class WorkerTimes:
    """Where one worker's time went, in ns: by stage, and waiting for a free buffer."""

    wait_ns: int = 0
    images: int = 0
    stage_ns: list[int] = field(default_factory=lambda: [0] * len(IMAGE_STAGES))

    def count(self, chunk: Chunk) -> None:
        """Add a chunk that the worker completed."""
        self.images += len(chunk.kept)
        width = len(IMAGE_STAGES) + 1
        sums = [sum(chunk.marks[column::width]) for column in range(width)]
        for stage, (began, ended) in enumerate(pairwise(sums)):
            self.stage_ns[stage] += ended - began


def worker_count(recipe: Recipe) -> int:
    """The recipe's workers; 0 is one for each core that this process may use."""
    return recipe.workers or usable_cores()


def ring_size(recipe: Recipe) -> int:
    """Batch buffers of a loader with this recipe."""
    return buffers_for(worker_count(recipe), recipe.batch_size)


class ThreadLoader(Loader):
    """The threads, the ring, and the two queues between them.

    Args:
        manifest: its valid images are loaded; or what a `Feed` has.
        positions: of the images, one list a batch; past the end they start over.
        build: binds each thread's stages, by default `pipeline.in_place_stages`; raises as it does.
        buffers: the ring's memory, where it is not the loader's own.
        one_large: held while a large picture is decoded; by default this process's lock.

    Iterating raises whatever a worker raised, with the worker's traceback.
    """

    engine = "threads"
    version = "wallclock threads"
    burst = 1

    def __init__(
        self,
        manifest: Manifest | Feed,
        recipe: Recipe,
        model: ModelSpec,
        positions: Positions,
        build: pipeline.BuildInPlace | None = None,
        buffers: Sequence[npt.NDArray[Any]] = (),
        one_large: AbstractContextManager[Any] = _one_large,
    ) -> None:
        if isinstance(manifest, Feed):
            self._feed = manifest
        else:
            set_threads(recipe, uses_torch=False)
            self._feed = Feed.of(manifest, recipe, model)
        self._reader = self._feed.reader
        self._augments = recipe.augment != "none"
        # Computed positions may say how many a batch has at most, to save a pass over them.
        if not buffers:
            size = getattr(positions, "batch_size", 0) or max(map(len, positions), default=1)
            count = buffers_for(worker_count(recipe), size)
            buffers = _buffers(recipe, pipeline.loaded_px(recipe, model), count, size)
        self._ring = Ring(buffers, positions)
        build, workers = build or pipeline.in_place_stages, range(worker_count(recipe))
        stages = [build(recipe, model, self._reader) for _ in workers]
        self._labels = stages[0].labels
        rows = [[stages[0].as_destination(row) for row in buffer] for buffer in self._ring.buffers]
        self._tasks: SimpleQueue[Chunk | None] = SimpleQueue()
        self._results: SimpleQueue[Chunk | BaseException] = SimpleQueue()
        queues = self._tasks, self._results
        self._workers = [
            _Worker(n, own, queues, self._feed, rows, one_large) for n, own in enumerate(stages)
        ]
        self._current: int | None = None
        self.workers = len(self._workers)
        self.prefetched = len(self._ring.buffers)
        self.settings = (
            f"{self.workers} threads; {recipe.decoder}, {recipe.resizer} {recipe.interpolation}, "
            f"{self._ring.buffers[0].dtype}"
        )

    def __enter__(self) -> "ThreadLoader":
        try:
            self._dispatch()
            for worker in self._workers:
                worker.thread.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stop(self) -> None:
        """Let the workers end; each finishes its current image."""
        if stop := getattr(self._reader, "stop", None):
            stop()
        for worker in self._workers:
            worker.stopped = True
            self._tasks.put(None)

    def close(self) -> None:
        """End the workers, and wait for them."""
        self.stop()
        for worker in self._workers:
            worker.thread.join()
        if close := getattr(self._reader, "close", None):
            close()

    def __next__(self) -> Batch:
        """The next batch in order; its predecessor's buffer goes back to the workers."""
        if self._current is not None:
            buffer, self._current = self._current, None
            self.release(buffer)
        if self._ring.exhausted:
            raise StopIteration
        self._current, batch = self.take()
        return batch

    def take(self) -> tuple[int, Batch]:
        """The next batch, and the number of its buffer, which is the caller's until `release`.

        Without a buffer that is free or being filled, it waits for ever.
        """
        while (chunks := self._ring.take()) is None:
            result = self._results.get()
            if isinstance(result, BaseException):
                raise result
            self._ring.finish(result)
        return chunks[0].buffer, self._batch(chunks)

    def release(self, buffer: int) -> None:
        """Give a buffer that `take` lent back to the workers."""
        self._ring.release(buffer)
        self._dispatch()

    def ready(self) -> int:
        """About how many complete batches wait to be requested."""
        return self._ring.ready(self._results.qsize())

    def worker_times(self) -> list[WorkerTimes]:
        """Where each worker's time has gone so far."""
        return [worker.times for worker in self._workers]

    def stats(self) -> dict[str, Any]:
        """`ring_batches`, `ring_mib`, and for each worker seconds by stage, of waiting, images."""
        ring_mib = sum(buffer.nbytes for buffer in self._ring.buffers) / 2**20
        workers = [_plain(times) for times in self.worker_times()]
        return {"ring_batches": self.prefetched, "ring_mib": ring_mib, "workers": workers}

    def _dispatch(self) -> None:
        chunks = self._ring.open()
        if self._reader.fetches_ahead:
            for chunk in chunks:
                chunk.items = [self._feed.item_at(at) for at in chunk.positions]
            self._reader.prefetch_more([item for chunk in chunks for item in chunk.items])
        for chunk in chunks:
            self._tasks.put(chunk)

    def _batch(self, chunks: list[Chunk]) -> Batch:
        buffer = self._ring.buffers[chunks[0].buffer]
        count, n = compact(buffer, chunks), self._feed.n
        items = [chunk.items[offset] for chunk in chunks for offset in chunk.kept]
        drawn = [pipeline.augmentation_of(item) for item in items if self._augments]
        known = [(chunk, offset) for chunk in chunks for offset in chunk.known]
        return Batch(
            [item.id for item in items],
            [chunk.positions[offset] % n for chunk in chunks for offset in chunk.kept],
            buffer[:count],
            [failure for chunk in chunks for failure in chunk.failures],
            [Marks(f"thread {chunk.worker}", IMAGE_STAGES, chunk.marks) for chunk in chunks],
            self._labels,
            [augmentation for augmentation in drawn if augmentation],
            items if self._feed.inspect else (),
            [(chunk.positions[offset] % n, chunk.items[offset]) for chunk, offset in known],
            [one for chunk in chunks for one in chunk.made],
        )


class _Worker:
    """One thread: takes chunks, leaves images in the rows that they name."""

    def __init__(
        self,
        number: int,
        stages: InPlaceStages,
        queues: tuple[SimpleQueue[Chunk | None], SimpleQueue[Chunk | BaseException]],
        feed: Feed,
        rows: list[list[Any]],
        one_large: AbstractContextManager[Any],
    ) -> None:
        self.thread = JoinableThread(self._run, f"loader {number}")
        self.stopped = False
        self.times = WorkerTimes()
        self._number = number
        self._stages = stages
        self._tasks, self._results = queues
        self._feed = feed
        self._rows, self._one_large = rows, one_large

    def _run(self) -> None:
        times = self.times
        try:
            while True:
                requested = perf_counter_ns()
                chunk = self._tasks.get()
                times.wait_ns += perf_counter_ns() - requested
                if chunk is None or self.stopped:
                    return
                self._fill(chunk)
                times.count(chunk)
                self._results.put(chunk)
        except BaseException as error:  # noqa: BLE001 - the consumer raises it, traceback included
            self._results.put(error)

    def _fill(self, chunk: Chunk) -> None:
        read, decode, resize_into = (
            self._stages.read,
            self._stages.decode,
            self._stages.resize_into,
        )
        inspect, also = self._feed.inspect, self._feed.also
        rows, kept, marks = self._rows[chunk.buffer], chunk.kept, chunk.marks
        items = chunk.items = chunk.items or [self._feed.item_at(at) for at in chunk.positions]
        chunk.worker = self._number
        row = chunk.first
        if self._stages.decode_many and not inspect and all(item.plain_jpeg for item in items):
            self._fill_together(chunk, items, self._stages.decode_many)
            return
        for offset, item in enumerate(items):
            if self.stopped:
                return
            try:
                began = perf_counter_ns()
                data = read(item)
                if inspect:
                    item, unknown = inspect(chunk.positions[offset], item, data)
                    items[offset] = item
                    if not unknown:
                        chunk.known.append(offset)
                        continue
                was_read = perf_counter_ns()
                with self._one_large if item.pixels > LARGE_PIXELS else _unlimited:
                    pixels = decode(item, data)
                    decoded = perf_counter_ns()
                    resize_into(item, pixels, rows[row])
                    if also:
                        chunk.made.append(also(data, item, pixels))
            except ImageError as error:
                chunk.fail(item.id, error)
                continue
            marks += (began, was_read, decoded, perf_counter_ns())
            kept.append(offset)
            row += 1

    def _fill_together(self, chunk: Chunk, items: Sequence[Item], decode_many: DecodeMany) -> None:
        """Fill a chunk after one call has decoded all of it; each image gets its share of the call.

        An image's times are as if its own stages had run in sequence.
        """
        rows = self._rows[chunk.buffer]
        read_ones: list[tuple[int, Item, bytes, int, int]] = []
        for offset, item in enumerate(items):
            began = perf_counter_ns()
            try:
                data = self._stages.read(item)
            except ImageError as error:
                chunk.fail(item.id, error)
                continue
            read_ones.append((offset, item, data, began, perf_counter_ns()))
        start = perf_counter_ns()
        decoded = decode_many([data for _, _, data, _, _ in read_ones])
        share = (perf_counter_ns() - start) // max(len(read_ones), 1)
        for (offset, item, _, began, was_read), pixels in zip(read_ones, decoded, strict=True):
            start = perf_counter_ns()
            try:
                if isinstance(pixels, ImageError):
                    raise pixels
                self._stages.resize_into(item, pixels, rows[chunk.first + len(chunk.kept)])
            except ImageError as error:
                chunk.fail(item.id, error)
                continue
            ended = was_read + share + perf_counter_ns() - start
            chunk.marks += (began, was_read, was_read + share, ended)
            chunk.kept.append(offset)


def _plain(times: WorkerTimes) -> dict[str, float]:
    by_stage = zip(IMAGE_STAGES, times.stage_ns, strict=True)
    seconds = {f"{name}_s": float(spent) / 1e9 for name, spent in by_stage}
    return {**seconds, "wait_s": times.wait_ns / 1e9, "images": times.images}


def _buffers(recipe: Recipe, input_px: int, count: int, batch_size: int) -> list[npt.NDArray[Any]]:
    """The ring's memory: written once, so that no page fault is timed; pinned for CUDA."""
    on_host = recipe.normalize_on == "host"
    nchw, nhwc = (batch_size, 3, input_px, input_px), (batch_size, input_px, input_px, 3)
    shape, dtype = (nchw, np.float32) if on_host else (nhwc, np.uint8)
    if not recipe.pins:
        return [np.full(shape, 0, dtype=dtype) for _ in range(count)]
    import torch

    torch_dtype = torch.float32 if on_host else torch.uint8
    return [torch.zeros(shape, dtype=torch_dtype, pin_memory=True).numpy() for _ in range(count)]
