"""Items of an iterable, read ahead by a thread: for what has no length and no random access.

The thread numbers the items of an epoch, passes them through the shuffle buffer, takes every
`world_size`-th of them, and makes batches. An iteration resumes by skipping what was taken; of tars
and tables that is not read, but for the shard or row group in which it resumes.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import isgenerator
from random import Random
from typing import Any

from wallclock.errors import UserError
from wallclock.fetch.sources import Source
from wallclock.loader.items import Record, as_source
from wallclock.loader.order import CLOSED, BatchSource, Place
from wallclock.loader.threads import JoinableThread

#: A position is the epoch times this, plus the number of the item in it.
EPOCH = 1 << 40
#: A generator that waits for something is not waited for.
_END_S = 1.0


@dataclass(frozen=True)
class StreamOrder:
    """Which items of an epoch each batch of one rank has.

    `shuffle`: items of the buffer from which the next one is drawn; 0: in order. `divided`: whether
    each rank has a stream of its own, as with the shards of a list of tars.
    """

    batch_size: int
    shuffle: int
    seed: int
    rank: int
    world_size: int
    drop_last: bool
    divided: bool = False

    #: Unknown.
    n = batches_per_epoch = None

    def batches(self, items: Iterable[Any], epoch: int) -> Iterator[list[tuple[int, Any]]]:
        """The batches of one epoch: positions and items.

        With `drop_last`, a batch comes once every rank has one of the same number.
        """
        numbered = enumerate(items)
        shuffled = self._shuffled(numbered, epoch) if self.shuffle else numbered
        rank, world_size = (0, 1) if self.divided else (self.rank, self.world_size)
        batch: list[tuple[int, Any]] = []
        for place, (number, item) in enumerate(shuffled):
            if place % world_size == rank:
                batch.append((epoch * EPOCH + number, item))
            is_full = len(batch) >= self.batch_size
            if is_full and (not self.drop_last or place % world_size == world_size - 1):
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def _shuffled(
        self, numbered: Iterable[tuple[int, Any]], epoch: int
    ) -> Iterator[tuple[int, Any]]:
        rng = Random((self.seed << 40) | epoch)
        held: list[tuple[int, Any]] = []
        for pair in numbered:
            if len(held) < self.shuffle:
                held.append(pair)
                continue
            at = rng.randrange(self.shuffle)
            drawn, held[at] = held[at], pair
            yield drawn
        rng.shuffle(held)
        yield from held


class StreamedBatches(BatchSource):
    """The batches of a stream, made by a thread, from `first` on to the epoch before `end`.

    `open_epoch`: the items of an epoch; those before the place's `items` are not looked at.
    `ahead`: batches that are read ahead at most; two, until the first is taken. Iterating raises
    whatever the user's iterable raised, behind the batches before it.
    """

    def __init__(
        self,
        open_epoch: Callable[[Place], Iterable[Any]],
        order: StreamOrder,
        first: Place,
        end: int,
        ahead: int,
    ) -> None:
        self.batch_size: int = order.batch_size
        #: Of the last batch that was taken.
        self.place: Place = first
        self._first = first
        self._open_epoch, self._order, self._end = open_epoch, order, end
        #: For batches beside one that is always read.
        self._room, self._more = threading.Semaphore(1), ahead - 2
        #: Each with the place behind it; the error that ended the thread, or StopIteration.
        self._read_ahead: queue.SimpleQueue[tuple[Place, list[Any]] | BaseException]
        self._read_ahead = queue.SimpleQueue()
        self._items: dict[int, Any] = {}
        self._places: deque[tuple[Place, list[str]]] = deque()
        self._stopped = threading.Event()
        self._is_begun = self._is_over = False
        #: Records that are in no batch yet, and the next one: how many are before it, and where.
        self._unbatched: dict[int, tuple[int, int, int]] = {}
        self._next = 0, 0, 0
        self._thread = JoinableThread(self._read, "loader stream")

    def stop(self) -> None:
        """See `BatchSource`: once the user's iterable has given the next item."""
        self._stopped.set()
        self._room.release()
        self._read_ahead.put(UserError(CLOSED))

    def close(self) -> None:
        """See `BatchSource`: unless the iterable waits for something itself."""
        self.stop()
        self._thread.join(_END_S)

    def __next__(self) -> Sequence[int]:
        if self._is_over:
            raise StopIteration
        if not self._is_begun:
            self._is_begun = True
            self._thread.start()
        received = self._read_ahead.get()
        if isinstance(received, BaseException):
            self._is_over = True
            raise received
        place, batch = received
        skipped = [name for _, item in batch if type(item) is Record for name in item.skipped]
        self._places.append((place, skipped))
        self._items.update(batch)
        return [position for position, _ in batch]

    def ready(self) -> bool:
        return self._is_over or not self._read_ahead.empty()

    def announced(self) -> None:
        """See `BatchSource`."""

    def taken(self) -> None:
        """See `BatchSource`: another one may be read ahead."""
        self.place, self.skipped = self._places.popleft()
        self._room.release(1 + self._more)
        self._more = 0

    def item(self, position: int) -> Source:
        """The item of an open batch as a source; for once."""
        item = self._items.pop(position)
        return item if isinstance(item, Source) else as_source(item, position % EPOCH)

    def _read(self) -> None:
        end: BaseException = StopIteration()
        try:
            self._read_epochs()
        except BaseException as raised:  # noqa: BLE001 - the consumer raises it
            end = raised
        self._read_ahead.put(end)

    def _read_epochs(self) -> None:
        for epoch in range(self._first.epoch, self._end):
            start = self._first if epoch == self._first.epoch else Place(epoch, 0)
            self._unbatched, self._next = {}, start[3:]
            items = self._until_stopped(self._open_epoch(start))
            for number, batch in enumerate(self._order.batches(items, epoch), 1):
                for position, _ in batch:
                    self._unbatched.pop(position % EPOCH, None)
                if number > start.batches:
                    earliest = next(iter(self._unbatched.values()), self._next)
                    self._read_ahead.put((Place(epoch, number, 0, *earliest), batch))
                    self._room.acquire()
                if self._stopped.is_set():
                    return

    def _until_stopped(self, items: Iterable[Any]) -> Iterator[Any]:
        iterator = iter(items)
        try:
            for number, item in enumerate(iterator):
                if self._stopped.is_set():
                    return
                if type(item) is Record:
                    self._unbatched[number] = self._next
                    self._next = number + 1, *item.behind
                yield item
        finally:
            if isgenerator(iterator):
                with suppress(Exception):
                    iterator.close()
