"""Which requests are sent again, how often, and after which pause."""

import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallclock.fetch.retries import (
    JITTER,
    TransientError,
    backoff_s,
    is_transient,
    retry,
    seconds_of,
)


@pytest.mark.parametrize(("patience", "n_pauses"), [(0, 1), (1, 2), (3, 4), (9, 4)])
def test_retry_backs_off_and_gives_up(patience: int, n_pauses: int) -> None:
    """Of five tries; `patience`: pauses that do not give up."""
    pauses = list[float]()

    def fail() -> None:
        raise TransientError("reset")

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        return len(pauses) > patience

    with pytest.raises(TransientError):
        retry(fail, 5, pause)
    assert len(pauses) == n_pauses
    assert all(0 <= pause <= 0.25 * 2**number for number, pause in enumerate(pauses, 1))


def test_bound_of_the_pause_doubles_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JITTER, "uniform", lambda low, high: high)
    assert [backoff_s(attempt) for attempt in (0, 1, 2, 9, 10**6)] == [0.5, 1, 2, 8, 8]


def test_transient_statuses() -> None:
    assert [status for status in range(400, 500) if is_transient(status)] == [408, 425, 429]
    assert all(map(is_transient, (500, 502, 503, 504)))
    assert not any(map(is_transient, (200, 301, 304)))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("-3", 0.0),
        ("nan", 0.0),
        ("soon", 0.0),
        ("Mon, 01 Jan 0001 00:00:00 GMT", 0.0),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", 0.0),
        ("Mon, 01 Jan 2027 00:00:00 +99999999999999999999", 0.0),
    ],
)
def test_what_a_server_asks_to_wait(header: str, seconds: float) -> None:
    assert seconds_of(header) == seconds


@given(st.text(max_size=40))
def test_any_text_is_a_pause(header: str) -> None:
    assert seconds_of(header) >= 0


def test_a_date_to_wait_for() -> None:
    assert 3500 < seconds_of(formatdate(time.time() + 3600, usegmt=True)) < 3700
