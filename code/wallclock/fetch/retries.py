"""A request that failed is tried again: after which failures, how often, and after which pause."""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TypeVar

T = TypeVar("T")

#: The statuses below 500 that a retry may mend: time-out, too early, too many requests.
_TRANSIENT_4XX = frozenset({408, 425, 429})
#: The bound of the first pause between two tries and of the longest one, in seconds.
_FIRST_S, _LONGEST_S = 0.5, 8.0

#: Of pauses: the caller's `random` stays as its seed left it, and forked processes differ.
JITTER = random.SystemRandom()


class RequestError(Exception):
    """A request that failed. `status`: of the HTTP answer, 0 without one. `retry_after_s`: its."""

    def __init__(self, reason: str, status: int = 0, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.status: int = status
        self.retry_after_s: float = retry_after_s


class TransientError(RequestError):
    """A retry may mend it."""


class NoSuchHostError(TransientError):
    """A name that cannot be looked up: there is none, or no network."""


class CertificateError(TransientError):
    """A host that does not prove who it is. A retry mends nothing before someone else does."""


class PermanentError(RequestError):
    """The server refuses it for good: no such key, forbidden."""


class ForbiddenError(PermanentError):
    """A 403: of this object, or, where there are no others, of the credentials."""


class RefusedError(PermanentError):
    """Credentials that are refused, whatever is asked for; in one line: why, and the cure."""


def is_transient(status: int) -> bool:
    """Whether a retry may mend this HTTP status."""
    return status >= 500 or status in _TRANSIENT_4XX


def status_error(status: int, retry_after_s: float) -> RequestError:
    """What an HTTP status that is no success means."""
    kind: type[RequestError] = TransientError
    if not is_transient(status):
        kind = ForbiddenError if status in (401, 403, 407) else PermanentError
    return kind(f"HTTP {status}", status, retry_after_s)


def backoff_s(attempt: int) -> float:
    """Seconds to wait after failed attempt `attempt`, from 0: random below a doubling bound."""
    return JITTER.uniform(0, min(_LONGEST_S, _FIRST_S * 2 ** min(attempt, 30)))


def seconds_of(retry_after: str) -> float:
    """What a header `Retry-After` asks to wait for, in seconds or until a date; 0 if not clear."""
    with suppress(ValueError):
        return max(0.0, float(retry_after))
    with suppress(ValueError, OverflowError):
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    return 0.0


def pause_s(attempt: int, error: RequestError) -> float:
    """Seconds to wait after an error, no shorter than the server asks for, within bounds."""
    return max(backoff_s(attempt), min(error.retry_after_s, _LONGEST_S))


def retry(call: Callable[[], T], attempts: int, pause: Callable[[float], object] = time.sleep) -> T:
    """Call until no `TransientError` is raised, and back off; a true result of `pause`: give up."""
    for attempt in range(attempts - 1):
        try:
            return call()
        except TransientError as error:
            if pause(pause_s(attempt, error)):
                raise
    return call()
