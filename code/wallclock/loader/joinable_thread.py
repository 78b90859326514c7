"""A thread that can be joined even if Ctrl-C interrupted its start."""

from collections.abc import Callable
from threading import Event, Thread

#: A thread that was started runs within this time, or its start was interrupted before it existed.
_START_S = 1.0


class JoinableThread(Thread):
    """A daemon thread.

    Ctrl-C can interrupt `Thread.start` when the thread is about to run and has no identity yet;
    `Thread.join` then claims that it was never started.
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
