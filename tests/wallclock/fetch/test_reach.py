"""When a failed GET is tried again, and when it, or everything, is given up; by a turned clock."""

import logging

import pytest

from wallclock.errors import NotReachedError
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


def fails_until_given_up(
    reach: Reach, clock: Clock, tries: Tries, error: TransientError = DOWN, other: str = ""
) -> tuple[float, NotReachedError]:
    """Seconds that a GET was tried for, while another host answers, and why no longer."""
    began = clock.now
    while True:
        try:
            clock.now += reach.failed(tries, error)
        except NotReachedError as given_up:
            return clock.now - began, given_up
        if other:
            reach.answered(other)


def test_a_host_is_given_up_after_a_minute_without_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What comes for it then fails at once, but for one now and then. Two lines say so."""
    clock = Clock()
    reach = Reach(60, clock=clock)
    seconds, given_up = fails_until_given_up(reach, clock, Tries("a.example"))
    assert seconds == 60
    assert (str(given_up), given_up.unreached) == ("read: HTTP 503", "all")
    for _ in range(3):
        assert reach.pause_s("a.example") < 60  # it may be that object's fault
        assert fails_until_given_up(reach, clock, Tries("a.example"))[0] == 0
    with pytest.raises(NotReachedError, match="its host was not reached: HTTP 503") as untried:
        reach.pause_s("a.example")
    assert untried.value.unreached == "all"
    clock.now += 9
    assert reach.pause_s("a.example") == 0
    with pytest.raises(NotReachedError):  # before the other one has an answer
        reach.pause_s("a.example")
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said == [
        "waiting up to 56 s for a.example: HTTP 503",
        "gave up a.example: nothing was reached for 60 s: HTTP 503",
    ]


def test_an_answer_starts_the_minute_anew() -> None:
    clock = Clock()
    reach = Reach(60, clock=clock)
    for _ in range(20):
        assert reach.failed(Tries("a.example"), DOWN) > 0
        clock.now += 50
        reach.answered("a.example")
    assert reach.pause_s("a.example") == 0


def test_idle_time_is_no_outage() -> None:
    clock = Clock()
    reach = Reach(60, clock=clock)
    reach.answered("a.example")
    clock.now += 3600
    assert reach.failed(Tries("a.example"), DOWN) > 0


@pytest.mark.parametrize(
    ("answered_before", "least_s", "most_s", "least_tries"), [(False, 5, 16, 2), (True, 20, 32, 4)]
)
def test_a_host_that_fails_alone(
    answered_before: bool, least_s: float, most_s: float, least_tries: int
) -> None:
    """Longer where it has answered; its other GETs then fail at their first try, or untried."""
    clock = Clock()
    reach = Reach(60, clock=clock)
    if answered_before:
        reach.answered("a.example")
    clock.now += 1
    tries = Tries("a.example")
    seconds, given_up = fails_until_given_up(reach, clock, tries, other="b.example")
    assert least_s <= seconds <= most_s
    assert given_up.unreached == "one"
    assert tries.n >= least_tries
    for _ in range(3):
        assert reach.pause_s("a.example") < 60  # it may be that object's fault
        fails_until_given_up(reach, clock, Tries("a.example"), other="b.example")
    with pytest.raises(NotReachedError):
        reach.pause_s("a.example")
    assert reach.pause_s("b.example") == 0
    clock.now += 3600
    assert reach.pause_s("a.example") == 0
    reach.answered("a.example")
    assert reach.failed(Tries("a.example"), DOWN) > 0


def test_an_object_that_fails_alone() -> None:
    """Others of its host are none the worse."""
    clock = Clock()
    reach = Reach(60, clock=clock)
    reach.answered("a.example")
    clock.now += 1
    tries = Tries("a.example")
    seconds, given_up = fails_until_given_up(reach, clock, tries, other="a.example")
    assert (20 <= seconds <= 32, given_up.unreached) == (True, "one")
    assert reach.pause_s("a.example") == 0
    assert reach.failed(Tries("a.example"), DOWN) > 0


def test_what_was_not_tried_says_so() -> None:
    """Of a host that has answered, in this run; of one that never has, it is its host's fault."""
    for has_answered, unreached in ((True, "untried"), (False, "one")):
        clock = Clock()
        reach = Reach(60, clock=clock)
        if has_answered:
            reach.answered("a.example")
        clock.now += 1
        for _ in range(4):
            fails_until_given_up(reach, clock, Tries("a.example"), other="b.example")
        with pytest.raises(NotReachedError) as failure:
            reach.pause_s("a.example")
        assert failure.value.unreached == unreached


def test_a_host_that_does_not_exist_while_others_do() -> None:
    clock, error = Clock(), NoSuchHostError("name")
    reach, tries = Reach(60, clock=clock), Tries("no.example")
    with pytest.raises(PermanentError, match=r"there is no host no\.example"):
        fails_until_given_up(reach, clock, tries, error, "b.example")
    assert tries.n == 3
    alone = Reach(60, clock=clock)  # perhaps there is no network
    assert fails_until_given_up(alone, clock, Tries("no.example"), error)[1].unreached == "all"


def test_retry_after_is_kept_and_bounded() -> None:
    """Who wants to be asked tomorrow does not hold up the others for longer than that."""
    clock = Clock()
    reach = Reach(60, clock=clock)
    for asked_s, waited_s in ((7.0, 7.0), (0.0, 0.5), (86_400.0, 60.0)):
        error = TransientError("HTTP 429")
        error.retry_after_s = asked_s
        assert reach.failed(Tries("a.example"), error) == waited_s
    assert fails_until_given_up(reach, clock, Tries("b.example"), error, "a.example")[0] == 60
