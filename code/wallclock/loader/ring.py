"""Batch buffers in a ring, and the bookkeeping of which part of which batch is where.

Only the consumer's thread uses it; workers see the rows that they fill. A batch owns a buffer from
the dispatch of its first chunk until the consumer has released it: the ring bounds the memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from wallclock.errors import ImageError, NotReachedError
from wallclock.loader.order import BatchSource

#: Images of a task: enough to amortize the queue, few enough to spread a batch over workers.
_LEAST, _MOST = 8, 16
#: Buffers beyond those being filled: one in the consumer's hands, two ready for it.
_SPARE = 3


@dataclass
class Chunk:
    """A part of one batch: positions of images, and the first row of the buffer that takes them.

    A worker fills in the rest: `items` (the images at `positions`), `kept` (offsets into both of
    images that loaded), `given` (by the user, where the feed keeps them), and what `Batch`,
    `Extras` and `Marks` have.
    """

    batch: int
    buffer: int
    first: int
    positions: Sequence[int]
    items: list[Any] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    fallbacks: int = 0
    worker: int = -1

    def fail(self, name: str, error: ImageError, file: str = "") -> None:
        """List an image that failed; `file`: that it is a record of, if it is one."""
        reason = error.reason if file in error.reason else f"{file}: {error.reason}"
        failure = {"id": name, "stage": error.stage, "reason": reason}
        if isinstance(error, NotReachedError):
            failure["unreached"] = error.unreached
        self.failures.append(failure)


def chunk_size(workers: int, batch_size: int) -> int:
    """Images of a task at most, where so many workers share batches of this size."""
    return min(max(batch_size // (2 * workers), _LEAST), _MOST)


def being_filled(workers: int, batch_size: int) -> int:
    """How many buffers have a task for every worker."""
    return -(-workers * chunk_size(workers, batch_size) // batch_size)


def buffers_for(workers: int, batch_size: int) -> int:
    """How many buffers keep every worker busy while the consumer holds one."""
    return being_filled(workers, batch_size) + _SPARE


class Ring:
    """Which batches are open, and whether the next one in order is complete.

    `buffers`: n arrays of batch_size rows. `most_open`: batches that are open at a time, whatever
    the consumer holds. `make_buffer`: makes one more, where the consumer has all the others.
    `chunk`: images of a task at most.
    """

    def __init__(
        self,
        buffers: Sequence[npt.NDArray[Any]],
        source: BatchSource,
        most_open: int,
        make_buffer: Callable[[], npt.NDArray[Any]] | None,
        chunk: int,
    ) -> None:
        self.buffers: list[npt.NDArray[Any]] = list(buffers)
        self.source: BatchSource = source
        self._make_buffer, self._most_open, self._chunk = make_buffer, most_open, chunk
        self._free = list(range(len(buffers)))[::-1]
        self._ended = False
        self._opened = self._next = 0
        self._pending: dict[int, int] = {}
        self._done: dict[int, list[Chunk]] = {}

    def open(self) -> list[Chunk]:
        """The chunks of every batch that has a free buffer; waits for a stream if none is open."""
        chunks: list[Chunk] = []
        while self._opened - self._next < self._most_open and self._has_buffer():
            if self._ended or (self._pending and not self.source.ready()):
                break
            positions = next(self.source, None)
            if positions is None:
                self._ended = True
                break
            chunks += self._split(self._opened, self._free.pop(), positions)
            self._opened += 1
        return chunks

    def _has_buffer(self) -> bool:
        if not self._free and self._make_buffer is not None:
            self.buffers.append(self._make_buffer())
            self._free.append(len(self.buffers) - 1)
        return bool(self._free)

    def finish(self, chunk: Chunk) -> None:
        """Record that a worker completed a chunk."""
        self._pending[chunk.batch] -= 1
        self._done[chunk.batch].append(chunk)

    @property
    def exhausted(self) -> bool:
        """Whether every batch was taken; asked after `open`."""
        return self._ended and self._next == self._opened

    def take(self) -> list[Chunk] | None:
        """The next batch's chunks in order, if all are finished; its buffer is the caller's."""
        if self._pending.get(self._next, 1):
            return None
        del self._pending[self._next]
        chunks = self._done.pop(self._next)
        self._next += 1
        self.source.taken()
        return sorted(chunks, key=lambda chunk: chunk.first)

    def release(self, buffer: int) -> None:
        """Return a buffer that `take` lent."""
        self._free.append(buffer)

    def _split(self, batch: int, buffer: int, positions: Sequence[int]) -> list[Chunk]:
        # An empty batch is one empty chunk, so that it is delivered like any other.
        n = self._chunk
        starts = range(0, max(len(positions), 1), n)
        self._pending[batch], self._done[batch] = len(starts), []
        return [Chunk(batch, buffer, start, positions[start : start + n]) for start in starts]


def compact(rows: npt.NDArray[Any], chunks: Sequence[Chunk]) -> int:
    """Close the gaps of failed images, in place; returns how many rows are left."""
    filled = 0
    for chunk in chunks:
        if filled == chunk.first and len(chunk.kept) == len(chunk.positions):
            filled += len(chunk.kept)
            continue
        for offset in chunk.kept:
            rows[filled] = rows[chunk.first + offset]
            filled += 1
    return filled
