"""The sink in a thread of its own, behind a queue that holds a few batches and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from time import perf_counter_ns

from wallclock.engines.joinable_thread import JoinableThread
from wallclock.engines.pipeline import Floats

#: Batches that may wait for the sink.
DEPTH = 4


@dataclass(frozen=True)
class Written:
    """One call of the sink, in ns: when its batch was asked for (0: to make the file whole), its begin and end."""

    asked: int
    began: int
    ended: int


class WriterThread:
    """Hands batches to a thread that writes them. Made by `open_writer`.

    `written`: what was written so far, in order; complete after `finish`. `wait_ns`: how long `put`
    stood still because the queue was full.
    """

    def __init__(
        self, write: Callable[[Sequence[str], Floats], None], finish: Callable[[], None]
    ) -> None:
        self.written: list[Written] = []
        self.wait_ns = 0
        self._write, self._finish = write, finish
        self._stopped = False
        self._work: SimpleQueue[tuple[Sequence[str], Floats, int] | None] = SimpleQueue()
        # A place in the queue, or the error that ended the thread.
        self._places: SimpleQueue[BaseException | None] = SimpleQueue()
        for _ in range(DEPTH):
            self._places.put(None)
        self._thread = JoinableThread(self._run, "sink")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, ids: Sequence[str], vectors: Floats, asked: int) -> None:
        """Queue n ids and their (n, dim) vectors, which the caller no longer touches.

        Waits while the queue is full. Raises what the sink raised, with its thread's traceback.
        """
        began = perf_counter_ns()
        self._take_place()
        self.wait_ns += perf_counter_ns() - began
        self._work.put((ids, vectors, asked))

    def finish(self) -> None:
        """Wait until all is written and the file is whole; raises what the sink raised."""
        self._work.put(None)
        self._thread.join()
        # Every place that is back, then whatever came after them.
        while not self._places.empty():
            self._take_place()

    def abandon(self) -> None:
        """End the thread; what waits in the queue is not written."""
        self._stopped = True
        self._work.put(None)
        self._thread.join()

    def _take_place(self) -> None:
        error = self._places.get()
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            for ids, vectors, asked in iter(self._work.get, None):
                if self._stopped:
                    return
                began = perf_counter_ns()
                self._write(ids, vectors)
                self.written.append(Written(asked, began, perf_counter_ns()))
                self._places.put(None)
            if not self._stopped:
                began = perf_counter_ns()
                self._finish()
                self.written.append(Written(0, began, perf_counter_ns()))
        except BaseException as error:  # noqa: BLE001 - the one who queues raises it, with this thread's traceback
            self._places.put(error)


@contextmanager
def open_writer(
    write: Callable[[Sequence[str], Floats], None], finish: Callable[[], None]
) -> Iterator[WriterThread]:
    """Start the thread; end it with the block, however that ends. Call `finish` for the file to be whole."""
    sink = WriterThread(write, finish)
    try:
        sink.start()
        yield sink
    finally:
        sink.abandon()
