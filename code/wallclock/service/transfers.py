"""Transfers in an event loop."""

import asyncio
import threading
from math import inf

from wallclock.fetch.transfers import Transfers


class LoopTransfers(Transfers):
    """Transfers in the running event loop, whose thread alone may ask.

    A thread of their own would take the GIL from the loop's, and give it back, for each answer.
    """

    def close(self) -> None:
        """Stop; a name that is being looked up is not waited for."""
        self._is_closed = True
        self._run_once()

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._alarm_at, self._alarm = inf, self._loop.call_soon(self._run_once)
        self._loop.add_reader(self._selector.fileno(), self._run_once)

    def _send_wake(self) -> None:
        self._loop.call_soon(self._run_once)

    def _run_once(self) -> None:
        if self.end:
            return
        if self._alarm_at <= self._loop.time():
            self._alarm_at = inf
        pause = self._turn(0)
        due = inf if pause is None else self._loop.time() + pause
        if self.end:
            self._alarm.cancel()
            self._loop.remove_reader(self._selector.fileno())
            threading.Thread(target=self._release, daemon=True).start()
        elif due < self._alarm_at:
            self._alarm.cancel()
            self._alarm_at, self._alarm = due, self._loop.call_at(due, self._run_once)
