"""A thread that can be joined even if Ctrl-C interrupted its start."""

from collections.abc import Callable
from threading import Event, Thread

#: A thread that was started runs within this time, or its start was interrupted before it existed.
_START_S = 1.0


class JoinableThread:
    """A daemon thread.

    Ctrl-C can interrupt `Thread.start` when the thread is about to run and has no identity yet;
    `Thread.join` then claims that it was never started.
    """

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._run = run
        self._thread = Thread(target=self._begin, name=name, daemon=True)
        self._launched = False
        self._running = Event()

    def start(self) -> None:
        """Start it."""
        self._launched = True
        self._thread.start()

    def join(self) -> None:
        """Wait until it has ended; at once where it never began."""
        if self._launched and self._running.wait(_START_S):
            self._thread.join()

    def _begin(self) -> None:
        self._running.set()
        try:
            self._run()
        finally:
            del self._run  # whose owner has this thread: what both hold is freed at once
