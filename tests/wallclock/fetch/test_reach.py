"""When a failed GET is tried again, and when it, or everything, is given up; by a turned clock."""

import logging

import pytest

from wallclock.fetch.reach import Reach, Tries
from wallclock.fetch.retries import JITTER, NoSuchHostError, PermanentError, TransientError

DOWN = TransientError("HTTP 503")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def longest_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JITTER, "uniform", lambda low, high: high)


def fails_until_given_up(reach: Reach, clock: Clock, tries: Tries, error: TransientError) -> float:
    """Seconds that a GET was tried for."""
    began = clock.now
    while (pause_s := reach.failed(tries, error)) is not None:
        clock.now += pause_s
        reach.answered("other.example")
    return clock.now - began


def test_everything_is_given_up_after_a_minute_without_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And what comes then fails at once. Two lines say so; the third, that it works again."""
    clock = Clock()
    reach, tries = Reach(60, clock=clock), Tries("a.example")
    began = clock.now
    while (pause_s := reach.failed(tries, DOWN)) is not None:
        clock.now += pause_s
    assert clock.now - began == 60
    assert reach.is_over
    assert reach.pause_s("b.example") is None
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said == [
        "waiting up to 56 s for a.example: HTTP 503",
        "gave up: nothing was reached for 60 s; a.example: HTTP 503",
    ]


def test_an_answer_starts_the_minute_anew() -> None:
    clock = Clock()
    reach, tries = Reach(60, clock=clock), Tries("a.example")
    for _ in range(20):
        assert reach.failed(tries, DOWN) is not None
        clock.now += 50
        reach.answered("a.example")
        tries = Tries("a.example")
    assert not reach.is_over


def test_idle_time_is_no_outage() -> None:
    clock = Clock()
    reach = Reach(60, clock=clock)
    reach.answered("a.example")
    clock.now += 3600
    assert reach.failed(Tries("a.example"), DOWN) is not None


@pytest.mark.parametrize(("answered_before", "least_s", "most_s"), [(False, 5, 16), (True, 20, 32)])
def test_a_host_that_fails_alone(answered_before: bool, least_s: float, most_s: float) -> None:
    """Longer where it has answered; its other GETs then fail at their first try, or untried."""
    clock = Clock()
    reach = Reach(60, clock=clock)
    if answered_before:
        reach.answered("a.example")
    clock.now += 1
    tries = Tries("a.example")
    assert least_s <= fails_until_given_up(reach, clock, tries, DOWN) <= most_s
    assert tries.n >= 4
    assert not reach.is_over
    assert reach.pause_s("a.example") is None
    assert reach.pause_s("other.example") == 0
    clock.now += 3600
    assert reach.pause_s("a.example") == 0
    reach.answered("a.example")
    assert reach.failed(Tries("a.example"), DOWN) is not None


def test_a_host_that_does_not_exist_while_others_do() -> None:
    clock = Clock()
    reach, tries = Reach(60, clock=clock), Tries("no.example")
    with pytest.raises(PermanentError, match=r"there is no host no\.example"):
        fails_until_given_up(reach, clock, tries, NoSuchHostError("name"))
    assert tries.n == 3
    alone, tries = Reach(60, clock=clock), Tries("no.example")
    while (pause_s := alone.failed(tries, NoSuchHostError("name"))) is not None:
        clock.now += pause_s  # perhaps there is no network
    assert alone.is_over


def test_retry_after_is_kept_and_bounded() -> None:
    reach = Reach(60, clock=Clock())
    for asked_s, waited_s in ((7.0, 7.0), (0.0, 0.5), (86_400.0, 60.0)):
        error = TransientError("HTTP 429")
        error.retry_after_s = asked_s
        assert reach.failed(Tries("a.example"), error) == waited_s


def test_silence_is_doubted_once() -> None:
    clock = Clock()
    reach, tries = Reach(60, clock=clock), Tries("a.example")
    assert not reach.is_doubtful()
    for _ in range(2):
        reach.failed(tries, DOWN)
        assert not reach.is_doubtful()
        clock.now += 1
        assert [reach.is_doubtful() for _ in range(3)] == [True, False, False]
        reach.answered("b.example")
        assert not reach.is_doubtful()


def test_tries_may_be_counted() -> None:
    reach, tries = Reach(60, most_tries=3, clock=Clock()), Tries("a.example")
    assert [reach.failed(tries, DOWN) for _ in range(3)] == [0.5, 1.0, None]
    assert not reach.is_over
