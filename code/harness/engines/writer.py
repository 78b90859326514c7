"""The sink behind one interface: written in the caller's thread, or in a thread of its own."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from time import perf_counter_ns

from wallclock.loader.threads import JoinableThread
from wallclock.stages.pixels import Vectors

#: Batches that may wait in the queue to the sink.
QUEUE_DEPTH = 4

Write = Callable[[Sequence[str], Vectors], None]


@dataclass(frozen=True)
class WriteSpan:
    """One call of the sink, in ns: its batch's request (0: closing the file), start, end."""

    requested: int
    began: int
    ended: int


class Writer:
    """Takes vectors to the sink, in the caller's thread. Made by `open_writer`.

    `written`: the sink's calls so far, in order; complete after `finish`. `wait_ns`: how long
    `put` was blocked on a full queue. `lane`: the thread that writes.
    """

    lane = "main"

    def __init__(self, write: Write, finish: Callable[[], None]) -> None:
        self.wait_ns = 0
        self.written: list[WriteSpan] = []
        self._write, self._finish = write, finish

    def put(self, ids: Sequence[str], vectors: Vectors, requested: int) -> None:
        """Write n ids and their (n, dim) vectors, which the caller no longer modifies.

        Args:
            requested: when the batch was requested, in ns.

        Raises whatever the sink raised.
        """
        began = perf_counter_ns()
        self._write(ids, vectors)
        self.written.append(WriteSpan(requested, began, perf_counter_ns()))

    def finish(self) -> None:
        """Return when the file is complete; raises whatever the sink raised."""
        self._finish()


class WriterThread(Writer):
    """Writes in a thread, behind a queue of `QUEUE_DEPTH` batches."""

    lane = "sink"

    def __init__(self, write: Write, finish: Callable[[], None]) -> None:
        super().__init__(write, finish)
        self._stopped = False
        self._work: SimpleQueue[tuple[Sequence[str], Vectors, int] | None] = SimpleQueue()
        # A free slot of the queue, or the error that ended the thread.
        self._free_slots: SimpleQueue[BaseException | None] = SimpleQueue()
        for _ in range(QUEUE_DEPTH):
            self._free_slots.put(None)
        self._thread = JoinableThread(self._run, "sink")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, ids: Sequence[str], vectors: Vectors, requested: int) -> None:
        """Queue a batch; block while the queue is full."""
        began = perf_counter_ns()
        self._acquire_slot()
        self.wait_ns += perf_counter_ns() - began
        self._work.put((ids, vectors, requested))

    def finish(self) -> None:
        """Wait until everything is written and the file is complete."""
        self._work.put(None)
        self._thread.join()
        # Every slot that was freed, then the error behind them, if there was one.
        while not self._free_slots.empty():
            self._acquire_slot()

    def abort(self) -> None:
        """End the thread; what waits in the queue is not written."""
        self._stopped = True
        self._work.put(None)
        self._thread.join()

    def _acquire_slot(self) -> None:
        error = self._free_slots.get()
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            for ids, vectors, requested in iter(self._work.get, None):
                if self._stopped:
                    return
                began = perf_counter_ns()
                self._write(ids, vectors)
                self.written.append(WriteSpan(requested, began, perf_counter_ns()))
                self._free_slots.put(None)
            if not self._stopped:
                began = perf_counter_ns()
                self._finish()
                self.written.append(WriteSpan(0, began, perf_counter_ns()))
        except BaseException as error:  # noqa: BLE001 - `put` and `finish` raise it, traceback included
            self._free_slots.put(error)


@contextmanager
def open_writer(write: Write, finish: Callable[[], None], *, in_thread: bool) -> Iterator[Writer]:
    """A writer that ends with the block. Call its `finish` to complete the file."""
    if not in_thread:
        yield Writer(write, finish)
        return
    writer = WriterThread(write, finish)
    try:
        writer.start()
        yield writer
    finally:
        writer.abort()
