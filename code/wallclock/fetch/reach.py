"""What a failed request means for the others: how long to back off, and when to give up.

A host that fails alone is given up while others answer, and then asked again now and then. While no
host answers at all, a job waits; after `give_up_s` the hosts that fail are given up, and after many
of them everything.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from math import isinf
from threading import Lock

from wallclock.errors import NotReachedError
from wallclock.fetch.retries import NoSuchHostError, PermanentError, TransientError, backoff_s

#: While others answer, a GET is given up after this share of `give_up_s`, and so many tries: of a
#: host that has answered before, and of one that never has.
_PATIENCE, _PATIENCE_AT_FIRST = (1 / 3, 4), (1 / 12, 2)
#: Tries of a name that cannot be looked up, while others can.
_NAME_TRIES = 3
#: Failures in a row after which a host is left alone for a while.
_MANY = 4
#: Hosts without which, while there is no other, nothing is tried any more.
_MOST_SILENT = 16
#: Seconds of silence after which it is looked at, and after which it is worth a line; and between
#: two tries of a host that was given up.
_DOUBTED_AFTER_S, _SAID_AFTER_S, _REST_S = 1.0, 3.0, 8.0

_log = logging.getLogger("wallclock")


@dataclass(slots=True)
class _Host:
    #: Since its last answer: failures, and GETs that were given up.
    failures: int = 0
    lost: int = 0
    reason: str = ""
    answered_at: float = float("-inf")
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

    `give_up_s`: seconds without any answer, from the first failure on. `most_tries`: of a GET; 0:
    as many as the time allows.
    """

    def __init__(
        self, give_up_s: float, most_tries: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._give_up_s, self._most_tries, self._clock = give_up_s, most_tries, clock
        self._hosts: defaultdict[str, _Host] = defaultdict(_Host)
        self._answered_at = float("-inf")
        #: Since when nothing answers; hosts that were given up since then.
        self._silent_since: float | None = None
        self._silent: set[str] = set()
        self._is_doubted = self._is_said = self._is_over = False
        self._reason = ""
        self._lock = Lock()

    def pause_s(self, name: str) -> float:
        """Seconds before a host may be asked. Raises NotReachedError: it was given up for now."""
        with self._lock:
            now, host = self._clock(), self._hosts[name]
            pause = max(0.0, host.rests_until - now)
            if self._is_over:
                raise self._not_reached(f"nothing was reached: {self._reason}", now)
            if host.is_given_up and pause:
                given_up = self._not_reached(f"its host was not reached: {host.reason}", now)
                if given_up.unreached == "one" and not isinf(host.answered_at):
                    given_up.unreached = "untried"  # the host has answered, and may again
                raise given_up
            if host.is_given_up:
                host.rests_until = now + _REST_S  # for others, until this one knows more
            return pause

    def answered(self, name: str) -> None:
        """Note that a host has answered."""
        with self._lock:
            host = self._hosts[name]
            host.failures, host.lost, host.rests_until, host.is_given_up = 0, 0, 0.0, False
            host.answered_at = self._answered_at = self._clock()
            self._silent_since = None
            self._silent.clear()
            self._is_doubted = False
            if self._is_said:
                _log.warning("%s answers again", name)
                self._is_said = False

    def is_doubtful(self) -> bool:
        """Whether nothing answers any more; True once, until something does."""
        with self._lock:
            since = self._silent_since
            if self._is_doubted or since is None or self._clock() - since < _DOUBTED_AFTER_S:
                return False
            self._is_doubted = True
            return True

    def failed(self, tries: Tries, error: TransientError) -> float:
        """Seconds until a GET is tried again. Raises NotReachedError, PermanentError: given up."""
        with self._lock:
            now, host = self._clock(), self._hosts[tries.host]
            tries.n += 1
            tries.since = tries.since or now
            host.failures += 1
            host.reason = self._reason = str(error)
            rest = max(backoff_s(tries.n - 1), min(error.retry_after_s, self._give_up_s))
            if host.failures >= _MANY:
                host.rests_until = now + rest
            if self._silent_since is None:
                self._silent_since = now
            if self._is_over or 0 < self._most_tries <= tries.n:
                raise self._not_reached(host.reason, now)
            gives_up = False
            if self._answered_at >= tries.since:
                if isinstance(error, NoSuchHostError) and tries.n >= _NAME_TRIES:
                    raise PermanentError(f"there is no host {tries.host}")
                gives_up = host.is_given_up or self._is_late(host, tries, error, now)
            elif not self._most_tries:
                gives_up = self._is_silent(tries.host, error, now)
                # It is given up then, and not later.
                rest = min(rest, self._give_up_s - now + self._silent_since)
            if gives_up:
                host.lost += 1
                # Fewer may be those objects' own, of which many may end at the same time.
                if host.lost >= _MANY and now - host.answered_at >= 2 * _SAID_AFTER_S:
                    host.is_given_up, host.rests_until = True, now + _REST_S
                raise self._not_reached(host.reason, now)
            return rest

    def _is_late(self, host: _Host, tries: Tries, error: TransientError, now: float) -> bool:
        share, least_tries = _PATIENCE_AT_FIRST if isinf(host.answered_at) else _PATIENCE
        has_tried = tries.n >= least_tries or error.retry_after_s > 0
        return has_tried and now - tries.since >= share * self._give_up_s

    def _is_silent(self, name: str, error: TransientError, now: float) -> bool:
        """Whether nothing has answered for too long; say that it does not."""
        silent_s = now - (self._silent_since or now)
        left_s = self._give_up_s - silent_s
        if left_s > 0:
            if silent_s >= _SAID_AFTER_S and not self._is_said:
                self._is_said = True
                _log.warning("waiting up to %.0f s for %s: %s", left_s, name, error)
            return False
        if not self._silent:
            _log.warning("gave up %s: nothing was reached for %.0f s: %s", name, silent_s, error)
        self._silent.add(name)
        self._is_over = self._is_over or len(self._silent) >= _MOST_SILENT
        return True

    def _not_reached(self, reason: str, now: float) -> NotReachedError:
        is_silent = self._silent_since is not None and now - self._silent_since >= self._give_up_s
        return NotReachedError("read", reason, "all" if is_silent else "one")
