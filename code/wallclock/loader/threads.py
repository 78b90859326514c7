"""Engine `threads`: worker threads decode and resize straight into batch buffers that are reused.

The libraries release the GIL while they work. Queues written in C are all that the threads share,
and a lock around very large pictures.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import repeat
from math import prod
from queue import SimpleQueue
from threading import Event, Thread
from time import perf_counter_ns
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from wallclock.check import LARGE_PIXELS, Inspector
from wallclock.errors import ImageError, UserError
from wallclock.fetch.sources import Reader
from wallclock.loader.at_once import Left, Result, Times
from wallclock.loader.batch import Batch, Extras, Marks
from wallclock.loader.items import Record
from wallclock.loader.loading import Loading
from wallclock.loader.order import CLOSED, BatchSource
from wallclock.loader.prepare import BuildInPlace, InPlaceStages, one_large, unlimited
from wallclock.loader.ring import Chunk, Ring, buffers_for, chunk_size, compact
from wallclock.machine import usable_cores
from wallclock.recipe import Recipe
from wallclock.stages.decode import webp
from wallclock.stages.decode.native import fallbacks

#: Of a buffer: each image's row, and as `InPlaceStages.resize_into` takes it.
_Rows: TypeAlias = tuple[list[npt.NDArray[Any]], list[Any]]
#: Stages of one image inside a worker, in order; `resize` normalizes too where the host does.
IMAGE_STAGES = ("read", "decode", "resize")
#: A thread that was started runs within this time, or its start was interrupted before it existed.
_START_S = 1.0


class JoinableThread(Thread):
    """A daemon thread that can be joined even if Ctrl-C interrupted its start.

    `Thread.join` claims that a thread was never started which has no identity yet.
    """

    def __init__(self, run: Callable[[], None], name: str) -> None:
        super().__init__(target=run, name=name, daemon=True)
        self._launched, self._running = False, Event()

    def start(self) -> None:
        """Start it."""
        self._launched = True
        super().start()

    def run(self) -> None:
        """In the thread."""
        self._running.set()
        super().run()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended; at once where it never began."""
        if self._launched and self._running.wait(_START_S):
            super().join(timeout)


@dataclass(frozen=True)
class Feed:
    """What a loader of threads loads: n images.

    `item_at`: what `reader` takes of the image at a position; past the last one they start over.
    With an `inspector`, an item is not known before that has seen its bytes. Where it `keeps`, its
    items have what the user gave, `given`, which is delivered (`Extras.given`).
    """

    reader: Reader
    n: int
    item_at: Callable[[int], Any]
    inspector: Inspector | None = None
    keeps: bool = False


def worker_count(recipe: Recipe) -> int:
    """The recipe's workers; 0 is one for each core that this process may use."""
    return recipe.workers or usable_cores()


@dataclass(frozen=True)
class Buffers:
    """The ring's memory.

    `row`, `dtype`: an image's shape and type. `pinned`: page-locked, for CUDA. `spare`: how many
    batches the consumer may hold beside the latest. `made`: buffers of another's, of which so many
    are spare; empty: the loader makes its own, and those that are spare once they are needed.
    """

    row: tuple[int, ...]
    dtype: npt.DTypeLike
    pinned: bool = False
    spare: int = 0
    made: Sequence[npt.NDArray[Any]] = ()

    def make(self, size: int) -> npt.NDArray[Any]:
        """One of `size` images; written once, so that no page fault is timed."""
        shape = size, *self.row
        if not self.pinned:
            return np.full(shape, 0, dtype=self.dtype)
        import torch

        n_bytes = prod(shape) * np.dtype(self.dtype).itemsize
        memory = torch.zeros(n_bytes, dtype=torch.uint8, pin_memory=True)
        return memory.numpy().view(self.dtype).reshape(shape)


class LendingLoader(Iterator[Batch]):
    """A context manager that lends its buffers (`take`); iterating gives each back for the next."""

    _current: int | None = None

    def __enter__(self) -> Self:
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> Batch:
        """The next batch in order; its predecessor's buffer goes back to the workers."""
        if self._current is not None:
            buffer, self._current = self._current, None
            self.release(buffer)
        self._current, batch = self.take()
        return batch

    def take(self) -> tuple[int, Batch]:
        """The next batch, and the number of its buffer, which is the caller's until `release`.

        Blocks forever where the caller holds all buffers. Raises StopIteration.
        """
        raise NotImplementedError

    def release(self, buffer: int) -> None:
        """Give back a buffer that `take` lent: the workers have it from the next `take` on."""
        raise NotImplementedError

    def stop(self) -> None:
        """Let the workers end; each finishes its current image."""
        raise NotImplementedError

    def close(self) -> None:
        """End the workers, and wait for them."""
        raise NotImplementedError


class ThreadLoader(LendingLoader):
    """The threads, the ring, and the two queues between them.

    `batches`: positions of the images; past the end they start over. `build`: binds each thread's
    stages; raises as `in_place_stages` does. `one_large`: held while a large picture is decoded.
    Iterating raises whatever a worker raised.
    """

    def __init__(
        self,
        feed: Feed,
        loading: Loading,
        threads: int,
        batches: Sequence[Sequence[int]] | BatchSource,
        build: BuildInPlace,
        buffers: Buffers,
        one_large: AbstractContextManager[Any] = one_large,
    ) -> None:
        self._feed, self._reader = feed, feed.reader
        source = batches if isinstance(batches, BatchSource) else BatchSource(batches)
        size = source.batch_size
        stages = [build(loading, self._reader) for _ in range(threads)]
        as_destination = stages[0].as_destination
        self._labels = stages[0].labels
        rows: list[_Rows] = []

        def add_rows(buffer: npt.NDArray[Any]) -> npt.NDArray[Any]:
            rows.append(([*buffer], [as_destination(row) for row in buffer]))
            return buffer

        made = buffers.made or [buffers.make(size) for _ in range(buffers_for(threads, size))]
        for buffer in made:
            add_rows(buffer)
        # A batch that is still held when the next one is requested takes one buffer of the ring:
        # with one more in turn, the ring would outgrow the cache that it fits into.
        n_held = buffers.spare if buffers.made else min(buffers.spare, 1)
        grows = buffers.spare and not buffers.made
        maker = (lambda: add_rows(buffers.make(size))) if grows else None
        self._ring = Ring(made, source, len(made) - n_held, maker, chunk_size(threads, size))
        self._tasks: SimpleQueue[Chunk | None] = SimpleQueue()
        self._results: SimpleQueue[Chunk | BaseException] = SimpleQueue()
        self._workers = [
            _Worker(number, stages_of_thread, self._tasks, self._results, feed, rows, one_large)
            for number, stages_of_thread in enumerate(stages)
        ]
        self.workers: int = threads

    def __enter__(self) -> Self:
        try:
            self._dispatch()
            for worker in self._workers:
                worker.thread.start()
        except BaseException:
            self.close()
            raise
        return self

    def stop(self) -> None:
        self._ring.source.stop()
        self._reader.stop()
        for worker in self._workers:
            worker.stopped = True
            self._tasks.put(None)
        self._results.put(UserError(CLOSED))

    def close(self) -> None:
        self.stop()
        for worker in self._workers:
            worker.thread.join()
        self._reader.close()
        self._ring.source.close()

    def take(self) -> tuple[int, Batch]:
        self._dispatch()
        if self._ring.exhausted:
            raise StopIteration
        while (chunks := self._ring.take()) is None:
            result = self._results.get()
            if isinstance(result, StopIteration):  # would end the consumer's loop without a word
                raise RuntimeError(f"a worker raised StopIteration: {result}") from result
            if isinstance(result, BaseException):
                raise result
            self._ring.finish(result)
        return chunks[0].buffer, self._batch(chunks)

    def release(self, buffer: int) -> None:
        self._ring.release(buffer)

    def _dispatch(self) -> None:
        chunks = self._ring.open()
        if self._reader.fetches_ahead:
            for chunk in chunks:
                chunk.items = [self._feed.item_at(at) for at in chunk.positions]
            ahead, announced = self._ring.source.announced(), self._feed.item_at
            known = [item for chunk in chunks for item in chunk.items]
            self._reader.prefetch(known if ahead is None else [*map(announced, ahead)])
        for chunk in chunks:
            self._tasks.put(chunk)

    def _batch(self, chunks: list[Chunk]) -> Batch:
        buffer = self._ring.buffers[chunks[0].buffer]
        count, n = compact(buffer, chunks), self._feed.n
        items = [chunk.items[offset] for chunk in chunks for offset in chunk.kept]
        are_drawn = bool(items) and items[0].augmentation is not None
        drawn = [item.augmentation for item in items if item.augmentation] if are_drawn else ()
        extras = Extras(
            marks=[Marks(f"thread {chunk.worker}", IMAGE_STAGES, chunk.marks) for chunk in chunks],
            labels={**self._labels, **webp.label()},
            augmentations=drawn,
            infos=items if self._feed.inspector else (),
            given=[chunk.given[offset] for chunk in chunks if chunk.given for offset in chunk.kept],
            fallbacks=sum(chunk.fallbacks for chunk in chunks),
        )
        return Batch(
            [item.id for item in items],
            [chunk.positions[offset] % n for chunk in chunks for offset in chunk.kept],
            buffer[:count],
            [failure for chunk in chunks for failure in chunk.failures],
            extras,
            skipped=[*self._ring.source.skipped],
        )


@dataclass(eq=False)
class _Worker:
    """One thread: takes chunks, leaves images in the rows that they name."""

    number: int
    stages: InPlaceStages
    tasks: SimpleQueue[Chunk | None]
    results: SimpleQueue[Chunk | BaseException]
    feed: Feed
    rows: list[_Rows]
    one_large: AbstractContextManager[Any]
    stopped: bool = False

    def __post_init__(self) -> None:
        self.thread = JoinableThread(self._run, f"loader {self.number}")

    def _run(self) -> None:
        try:
            while True:
                chunk = self.tasks.get()
                if chunk is None or self.stopped:
                    return
                self._fill(chunk)
                self.results.put(chunk)
        except BaseException as error:  # noqa: BLE001 - the consumer raises it, traceback included
            self.results.put(error)

    def _fill(self, chunk: Chunk) -> None:
        feed = self.feed
        items = chunk.items = chunk.items or [feed.item_at(at) for at in chunk.positions]
        if feed.keeps:
            chunk.given = [item.given for item in items]
        chunk.worker, counted = self.number, fallbacks()
        for offset, result in enumerate(self._loaded(chunk)):
            if self.stopped:
                return
            if isinstance(result, Left):
                result = self._load(chunk, offset, result)
            if isinstance(result, tuple):
                chunk.marks += result
                chunk.kept.append(offset)
            else:
                given = chunk.given[offset] if chunk.given else None
                file = given.file if isinstance(given, Record) else ""
                chunk.fail(items[offset].id, result, file)
        chunk.fallbacks = fallbacks() - counted

    def _loaded(self, chunk: Chunk) -> Iterator[Result]:
        """What became of each image, where they are loaded at once."""
        offset, n, at_once = 0, len(chunk.items), self.stages.at_once
        while offset < n and at_once:
            rows = self.rows[chunk.buffer][0]
            results = at_once.load(self.feed.inspector, chunk, offset, rows)
            yield from results
            offset += len(results)
        yield from repeat(Left(), n - offset)

    def _load(self, chunk: Chunk, offset: int, left: Left) -> Times | ImageError:
        """Load one image, by one stage after the other."""
        stages, feed, item = self.stages, self.feed, chunk.items[offset]
        try:
            began = perf_counter_ns() - left.read_ns
            data = stages.read(item) if left.data is None else left.data
            if feed.inspector and not left.inspected:
                item = feed.inspector(chunk.positions[offset], item.id, data)
                chunk.items[offset] = item
            was_read = perf_counter_ns()
            decode = stages.decode
            if left.fallback and stages.at_once:
                decode = stages.at_once.decode_fallback
            with self.one_large if item.pixels > LARGE_PIXELS else unlimited:
                pixels = decode(item, data)
                decoded = perf_counter_ns()
                destination = self.rows[chunk.buffer][1][chunk.first + offset]
                stages.resize_into(item, pixels, destination)
        except ImageError as error:
            return error
        return began, was_read, decoded, perf_counter_ns()
