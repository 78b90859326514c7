"""Which requests are sent again, how often, and after which pause."""

import pytest

from wallclock.fetch.retries import JITTER, TransientError, backoff_s, is_transient, retry


def test_retry_backs_off_and_gives_up() -> None:
    pauses: list[float] = []

    def fail() -> None:
        raise TransientError("reset")

    with pytest.raises(TransientError):
        retry(fail, 5, pauses.append)
    assert len(pauses) == 4
    assert all(0 <= pause <= 0.25 * 2**number for number, pause in enumerate(pauses, 1))
    with pytest.raises(TransientError):
        retry(fail, 5, lambda seconds: True)


def test_bound_of_the_pause_doubles_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JITTER, "uniform", lambda low, high: high)
    assert [backoff_s(attempt) for attempt in (0, 1, 2, 9, 10**6)] == [0.5, 1, 2, 8, 8]
    assert [backoff_s(attempt, 0.1, 5.0) for attempt in (0, 1, 9)] == [0.1, 0.2, 5]


def test_transient_statuses() -> None:
    assert [status for status in range(400, 500) if is_transient(status)] == [408, 425, 429]
    assert all(map(is_transient, (500, 502, 503, 504)))
    assert not any(map(is_transient, (200, 301, 304)))
