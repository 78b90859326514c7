"""What a failed request means for the others: how long to back off, and when to give up.

A host that fails alone is given up while others answer, and then asked again now and then. While no
host answers at all, a job waits; after `give_up_s` it gives everything up.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from wallclock.fetch.retries import NoSuchHostError, PermanentError, TransientError, backoff_s

#: Tries of a GET, at least, before it is given up while other hosts answer.
_LEAST_TRIES = 4
#: Shares of `give_up_s` for which a host may fail while others answer: one that has answered
#: before, and one that never has.
_PATIENCE, _PATIENCE_AT_FIRST = 1 / 3, 1 / 12
#: Failures in a row after which a host is left alone for a while.
_MANY = 4
#: Seconds of silence after which it is looked at, and after which it is worth a line.
_DOUBTED_AFTER_S, _SAID_AFTER_S = 1.0, 3.0

_log = logging.getLogger("wallclock")


@dataclass(slots=True)
class _Host:
    #: Since its last answer.
    failures: int = 0
    has_answered: bool = False
    is_given_up: bool = False
    #: Until then it is left alone.
    rests_until: float = 0.0


@dataclass(slots=True)
class Tries:
    """The failed tries of one GET, and when the first of them failed."""

    host: str
    n: int = 0
    since: float = 0.0


class Reach:
    """Whether hosts answer. Threads may share it.

    Args:
        give_up_s: seconds without any answer, from the first failure on.
        most_tries: of a GET; 0: as many as the time allows.
    """

    def __init__(
        self, give_up_s: float, most_tries: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._give_up_s, self._most_tries, self._clock = give_up_s, most_tries, clock
        self._hosts: defaultdict[str, _Host] = defaultdict(_Host)
        self._answered_at = float("-inf")
        self._failing_since: float | None = None
        self._is_doubted = self._is_said = False
        self._lock = Lock()
        #: Whether everything was given up; and the last failure's reason.
        self.is_over, self.reason = False, ""

    def pause_s(self, name: str) -> float | None:
        """Seconds before a host may be asked; None: it was given up for now."""
        with self._lock:
            host = self._hosts[name]
            pause = max(0.0, host.rests_until - self._clock())
            return None if self.is_over or (host.is_given_up and pause) else pause

    def answered(self, name: str) -> None:
        """Note that a host has answered."""
        with self._lock:
            host = self._hosts[name]
            host.failures, host.rests_until = 0, 0.0
            host.has_answered, host.is_given_up = True, False
            self._answered_at = self._clock()
            self._failing_since = None
            self._is_doubted = False
            if self._is_said:
                _log.warning("%s answers again", name)
                self._is_said = False

    def is_doubtful(self) -> bool:
        """Whether nothing answers any more; True once, until something does.

        Perhaps all that is asked for is dead: then something that was alive can tell.
        """
        with self._lock:
            since = self._failing_since
            if self._is_doubted or since is None or self._clock() - since < _DOUBTED_AFTER_S:
                return False
            self._is_doubted = True
            return True

    def failed(self, tries: Tries, error: TransientError) -> float | None:
        """Seconds after which a GET is to be tried again; None: it is given up.

        Raises PermanentError: its host does not exist, while others answer.
        """
        with self._lock:
            now, host = self._clock(), self._hosts[tries.host]
            tries.n += 1
            self.reason = str(error)
            tries.since = tries.since or now
            host.failures += 1
            rest = max(backoff_s(tries.n - 1), min(error.retry_after_s, self._give_up_s))
            if host.failures >= _MANY:
                host.rests_until = now + rest
            if self._failing_since is None:
                self._failing_since = now
            if self.is_over or 0 < self._most_tries <= tries.n:
                return None
            if self._answered_at >= tries.since:
                if isinstance(error, NoSuchHostError) and tries.n >= _LEAST_TRIES - 1:
                    raise PermanentError(f"there is no host {tries.host}")
                patience = _PATIENCE if host.has_answered else _PATIENCE_AT_FIRST
                is_late = now - tries.since >= patience * self._give_up_s
                if host.is_given_up or (is_late and tries.n >= _LEAST_TRIES):
                    host.is_given_up = True
                    return None
            elif not self._most_tries:
                silent_s = now - self._failing_since
                self._wait(tries.host, error, silent_s)
                rest = min(rest, self._give_up_s - silent_s)  # then it is given up, and not later
            return None if self.is_over else rest

    def _wait(self, name: str, error: TransientError, silent_s: float) -> None:
        """Say that nothing answers, or give up."""
        if silent_s >= self._give_up_s:
            self.is_over = True
            _log.warning("gave up: nothing was reached for %.0f s; %s: %s", silent_s, name, error)
        elif silent_s >= _SAID_AFTER_S and not self._is_said:
            self._is_said = True
            left_s = self._give_up_s - silent_s
            _log.warning("waiting up to %.0f s for %s: %s", left_s, name, error)
