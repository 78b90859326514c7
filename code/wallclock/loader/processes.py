"""Engine `threads` in several processes, each of which loads every n-th batch.

Threads share one interpreter lock: with thumbnails, two of them already wait for each other. The
processes are forked; a batch's images lie in shared memory, the rest of it goes through a pipe.
"""

import gc
import mmap
import multiprocessing
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any, Self

import numpy as np

from wallclock.errors import UserError
from wallclock.loader.batch import Batch
from wallclock.loader.threads import Buffers, LendingLoader, ThreadLoader

#: Batches of a process that wait in its pipe at most, and its buffers: as many, and one that is
#: being filled.
_WAITING = 2
_BUFFERS = _WAITING + 1
#: What the consumer sends when it has received a batch; else it sends the buffer that it returns.
_RECEIVED = -1
#: A process ends once its pipe is closed, at the latest after the batch that it fills.
_END_S = 2.0


class ForkedLoader(LendingLoader):
    """The processes, and the memory and a pipe of each.

    `open_threads`: a loader of these batches, with so many threads and this memory; the lock is
    held while a large picture is decoded: one at a time in all processes. `workers`: threads of
    all. Iterating raises whatever a process raised; UserError: one was killed.
    """

    def __init__(
        self,
        open_threads: Callable[[Sequence[Sequence[int]], int, Buffers, Any], ThreadLoader],
        batches: Sequence[Sequence[int]],
        batch_size: int,
        buffers: Buffers,
        processes: int,
        workers: int,
    ) -> None:
        self._open_threads, self._batches, self._each = open_threads, batches, buffers
        shape, dtype = (batch_size, *buffers.row), buffers.dtype
        # Anonymous and shared: the kernel frees it with the last process. What is spare takes
        # memory once it is written to.
        n_bytes = (_BUFFERS + buffers.spare) * prod(shape) * np.dtype(dtype).itemsize
        memory = [mmap.mmap(-1, n_bytes) for _ in range(processes)]
        self._buffers = [np.frombuffer(area, dtype).reshape(-1, *shape) for area in memory]
        self._context = multiprocessing.get_context("fork")
        self._one_large = self._context.Lock()
        self._children: list[tuple[Connection, ForkProcess]] = []
        self._next = 0
        self.workers: int = workers

    def __enter__(self) -> Self:
        if multiprocessing.current_process().daemon:
            n = len(self._buffers)
            raise UserError(f"processes={n}: this process is daemonic, it may have no children")
        # A collection in a process would write to, and so copy, what all of them share.
        was_frozen = gc.get_freeze_count() > 0
        gc.freeze()
        # The processes keep the mask: of a signal to all of them, the consumer decides.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            try:
                for number in range(len(self._buffers)):
                    self._start(number)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # raises, where one has arrived
        except BaseException:
            self.close()
            raise
        finally:
            if not was_frozen:  # what the program froze itself stays so
                gc.unfreeze()
        return self

    def _start(self, number: int) -> None:
        ours, theirs = self._context.Pipe()
        arguments = number, theirs, ours
        child = self._context.Process(target=self._load, args=arguments, daemon=True)
        child.start()
        theirs.close()
        self._children.append((ours, child))

    def take(self) -> tuple[int, Batch]:
        if self._next == len(self._batches):
            raise StopIteration
        number = self._next % len(self._buffers)
        pipe, child = self._children[number]
        try:
            received: BaseException | tuple[int, Batch] = pickle.loads(pipe.recv_bytes())
        except (EOFError, ConnectionError) as error:
            child.join(_END_S)
            fix = "if for its memory, set processes=1 or a smaller batch"
            raise UserError(f"a loader's process ended with {child.exitcode}: {fix}") from error
        if isinstance(received, BaseException):
            raise received
        buffer, batch = received
        batch.images = self._buffers[number][buffer, : len(batch.ids)]
        with suppress(OSError):  # it has sent its last batch, and ended
            pipe.send(_RECEIVED)
        self._next += 1
        return buffer * len(self._buffers) + number, batch

    def release(self, buffer: int) -> None:
        at, number = divmod(buffer, len(self._buffers))
        with suppress(OSError):
            self._children[number][0].send(at)

    def stop(self) -> None:
        """See `LendingLoader`: after the batch that a process fills."""
        for pipe, _ in self._children:
            pipe.close()

    def close(self) -> None:
        self.stop()
        for _, child in self._children:
            child.join(_END_S)
            if child.is_alive():
                child.kill()
                child.join()
        self._children.clear()

    def _load(self, number: int, pipe: Connection, consumers: Connection) -> None:
        """In a process: load batches, and wait for buffers, until the pipe is closed."""
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)  # a fork has none of OpenMP's threads
        # A pipe ends when its last holder has closed it: this process has those of earlier ones.
        for other in (consumers, *(pipe for pipe, _ in self._children)):
            other.close()
        batches = self._batches[number :: len(self._buffers)]
        threads = len(range(number, self.workers, len(self._buffers)))
        buffers = replace(self._each, made=[*self._buffers[number]])
        with suppress(EOFError, ConnectionError):
            try:
                with self._open_threads(batches, threads, buffers, self._one_large) as loader:
                    _send_all(loader, len(batches), pipe)
                    while True:
                        pipe.recv()
            except (EOFError, ConnectionError):
                raise
            except BaseException as error:  # noqa: BLE001 - the consumer raises it
                pipe.send(_portable(error))


def _portable(error: BaseException) -> BaseException:
    """The error as a pipe takes it: its traceback in a note, and of a type that can be pickled."""
    if isinstance(error, UserError):
        return error
    text = "".join(traceback.format_exception(error))
    try:
        if type(pickle.loads(pickle.dumps(error))) is not type(error):
            raise TypeError
    except Exception:  # noqa: BLE001 - whatever a class of the user's raises
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"In a process of the loader:\n{text}")
    return error


def _send_all(loader: ThreadLoader, n: int, pipe: Connection) -> None:
    waiting = 0
    for _ in range(n):
        while waiting == _WAITING or pipe.poll():
            message = pipe.recv()
            if message == _RECEIVED:
                waiting -= 1
            else:
                loader.release(message)
        buffer, batch = loader.take()
        batch.images = None
        pipe.send_bytes(pickle.dumps((buffer, batch), pickle.HIGHEST_PROTOCOL))
        waiting += 1
