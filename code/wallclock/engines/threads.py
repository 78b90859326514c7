"""Engine `threads`: worker threads decode and resize straight into batch buffers that are used over and over.

The libraries underneath let go of the interpreter while they work, so threads share what processes
would have to copy: a batch is never pickled, moved or put together. Queues written in C are all that
the threads have in common; no lock is ever held that an interrupted thread could fail to give back.

    with loading(items, root, recipe, input_px, positions) as loader:
        for batch in loader:
            batch.ids, batch.images      # valid until the next batch is asked for
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.corpus import readers
from wallclock.corpus.manifest import Item
from wallclock.engines import pipeline
from wallclock.engines.joinable_thread import JoinableThread
from wallclock.engines.pipeline import RowLoader
from wallclock.engines.ring import Chunk, Ring, buffers_for, compact
from wallclock.errors import ImageError
from wallclock.spec import IMAGENET, Recipe, Statistics
from wallclock.thread_counts import set_threads

#: Stages of one image inside a worker, in order: marks hold their start and the last one's end.
IMAGE_STAGES = ("read", "decode", "resize")


@dataclass
class Batch:
    """n images that lie in the ring; what is in `images` is valid until the next batch is asked for.

    `images`: uint8 (n, h, w, 3), or float32 (n, 3, h, w) where the recipe normalizes on the host.
    `marks`: for each chunk, its worker's number and, for each image, the ns at which each stage began
    and the last one ended. `waited_ns`: how long the consumer stood still for this batch.
    """

    ids: list[str]
    images: npt.NDArray[Any]
    failures: list[dict[str, str]]
    marks: list[tuple[int, list[tuple[int, ...]]]]
    waited_ns: int


@dataclass
class Busy:
    """Where one worker's time went, in ns: by stage, and waiting for a free buffer."""

    wait_ns: int = 0
    stage_ns: dict[str, int] = field(default_factory=dict)
    images: int = 0


@contextmanager
def loading(
    items: Sequence[Item],
    root: Path,
    recipe: Recipe,
    input_px: int,
    positions: Sequence[Sequence[int]],
    statistics: Statistics = IMAGENET,
) -> Iterator[Loader]:
    """Start the workers; stop them at the end of the block, however it ends.

    Args:
        positions: one list of positions a batch; a position past the end starts over.

    Raises:
        UserError, Unavailable: as `pipeline.build_rows` does.
        Exception: whatever a worker raised, with the worker's traceback.
    """
    loader = Loader(items, root, recipe, input_px, positions, statistics)
    try:
        loader.start()
        yield loader
    finally:
        loader.close()


def workers_of(recipe: Recipe) -> int:
    """The recipe's workers; 0 is one for each core that this process may use."""
    return recipe.workers or len(os.sched_getaffinity(0))


class Loader:
    """The threads, the ring and what goes to and fro between them. Made by `loading`."""

    def __init__(
        self,
        items: Sequence[Item],
        root: Path,
        recipe: Recipe,
        input_px: int,
        positions: Sequence[Sequence[int]],
        statistics: Statistics = IMAGENET,
    ) -> None:
        set_threads(recipe, uses_torch=False)
        self.workers = workers_of(recipe)
        self._items = items
        size = max((len(batch) for batch in positions), default=1)
        self._ring = Ring(
            _buffers(recipe, input_px, buffers_for(self.workers, size), size), positions
        )
        self._reader = readers.make(root)
        loaders = [
            pipeline.build_rows(recipe, input_px, self._reader, statistics)
            for _ in range(self.workers)
        ]
        rows = [[loaders[0].prepare(row) for row in buffer] for buffer in self._ring.buffers]
        self._tasks: SimpleQueue[Chunk | None] = SimpleQueue()
        self._results: SimpleQueue[Chunk | BaseException] = SimpleQueue()
        self._crew = [_Worker(n, loader, self, rows) for n, loader in enumerate(loaders)]
        self._held: int | None = None

    @property
    def ring_size(self) -> int:
        """How many batches the ring holds."""
        return len(self._ring.buffers)

    @property
    def ring_bytes(self) -> int:
        """Bytes of all batch buffers together: what loading may take beyond the images in work."""
        return sum(buffer.nbytes for buffer in self._ring.buffers)

    def ready(self) -> int:
        """About how many batches are whole and wait to be taken."""
        return self._ring.ready(self._results.qsize())

    def start(self) -> None:
        """Start the workers on the first batches."""
        self._hand_out()
        for worker in self._crew:
            worker.thread.start()

    def close(self) -> None:
        """End the workers; each finishes the image that it is at."""
        for worker in self._crew:
            worker.stopped = True
            self._tasks.put(None)
        for worker in self._crew:
            worker.thread.join()
        close = getattr(self._reader, "close", None)
        if close is not None:
            close()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """The next batch in order; its predecessor's buffer goes back to the workers."""
        self._let_go()
        if self._ring.exhausted:
            raise StopIteration
        asked = perf_counter_ns()
        while (chunks := self._ring.take()) is None:
            result = self._results.get()
            if isinstance(result, BaseException):
                raise result
            self._ring.finish(result)
        waited = perf_counter_ns() - asked
        self._held = chunks[0].buffer
        return self._batch(chunks, waited)

    def busy(self) -> list[Busy]:
        """Where each worker's time went so far."""
        return [worker.busy() for worker in self._crew]

    def _let_go(self) -> None:
        if self._held is not None:
            buffer, self._held = self._held, None
            self._ring.release(buffer)
            self._hand_out()

    def _hand_out(self) -> None:
        chunks, n = self._ring.open(), len(self._items)
        self._reader.expect_too(
            [self._items[position % n] for chunk in chunks for position in chunk.positions]
        )
        for chunk in chunks:
            self._tasks.put(chunk)

    def _batch(self, chunks: list[Chunk], waited: int) -> Batch:
        buffer = self._ring.buffers[chunks[0].buffer]
        count = compact(buffer, chunks)
        items, n = self._items, len(self._items)
        ids = [items[chunk.positions[offset] % n].id for chunk in chunks for offset in chunk.kept]
        failures = [failure for chunk in chunks for failure in chunk.failures]
        return Batch(
            ids, buffer[:count], failures, [(chunk.worker, chunk.marks) for chunk in chunks], waited
        )


class _Worker:
    """One thread: takes chunks, leaves images in the rows that they name."""

    def __init__(
        self, number: int, loader: RowLoader, owner: Loader, rows: list[list[Any]]
    ) -> None:
        self.thread = JoinableThread(self._run, f"loader {number}")
        self.stopped = False
        self._number = number
        self._loader = loader
        self._tasks, self._results, self._items = owner._tasks, owner._results, owner._items
        self._rows = rows
        self._wait_ns = 0
        self._images = 0
        self._stage_ns = [0] * len(IMAGE_STAGES)

    def busy(self) -> Busy:
        return Busy(
            self._wait_ns, dict(zip(IMAGE_STAGES, self._stage_ns, strict=True)), self._images
        )

    def _run(self) -> None:
        try:
            while True:
                asked = perf_counter_ns()
                chunk = self._tasks.get()
                self._wait_ns += perf_counter_ns() - asked
                if chunk is None or self.stopped:
                    return
                self._fill(chunk)
                self._count(chunk.marks)
                self._results.put(chunk)
        except BaseException as error:  # noqa: BLE001 - the consumer raises it, with this thread's traceback
            self._results.put(error)

    def _fill(self, chunk: Chunk) -> None:
        read_bytes, decode, place = self._loader.read, self._loader.decode, self._loader.place
        rows, items, n = self._rows[chunk.buffer], self._items, len(self._items)
        kept, marks = chunk.kept, chunk.marks
        chunk.worker = self._number
        row = chunk.first
        for offset, position in enumerate(chunk.positions):
            if self.stopped:
                return
            item = items[position % n]
            try:
                began = perf_counter_ns()
                data = read_bytes(item)
                was_read = perf_counter_ns()
                pixels = decode(item, data)
                decoded = perf_counter_ns()
                place(item, pixels, rows[row])
            except ImageError as error:
                chunk.failures.append({"id": item.id, "stage": error.stage, "reason": error.reason})
                continue
            marks.append((began, was_read, decoded, perf_counter_ns()))
            kept.append(offset)
            row += 1

    def _count(self, marks: list[tuple[int, ...]]) -> None:
        self._images += len(marks)
        for stage in range(len(IMAGE_STAGES)):
            self._stage_ns[stage] += sum(each[stage + 1] - each[stage] for each in marks)


def _buffers(recipe: Recipe, input_px: int, count: int, batch_size: int) -> list[npt.NDArray[Any]]:
    """The ring's memory, touched once so that no page is first met while the clock runs; pinned for CUDA."""
    on_host = recipe.normalize_on == "host"
    shape = (batch_size, 3, input_px, input_px) if on_host else (batch_size, input_px, input_px, 3)
    if recipe.device != "cuda":
        return [np.full(shape, 0, dtype=np.float32 if on_host else np.uint8) for _ in range(count)]
    import torch

    kind = torch.float32 if on_host else torch.uint8
    pinned: list[npt.NDArray[Any]] = [
        torch.zeros(shape, dtype=kind, pin_memory=True).numpy() for _ in range(count)
    ]
    return pinned
