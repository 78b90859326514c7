"""How long a message is held, and what is done when that or the queue's answer fails."""

import asyncio
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wallclock.service.test_intake import BODY, Case
from wallclock.service import intake
from wallclock.service.intake import Item
from wallclock.service.interface import ItemError
from wallclock.service.leases import Bound, Leases, Message
from wallclock.service.sqs import QueueRefusal


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_deadline_counts_from_before_the_receive() -> None:
    """The queue hides a message from some moment of the call on."""
    case = Case([Message("a", "a1", BODY)])

    async def session() -> None:
        case.queue.answers = asyncio.Event()
        pull = asyncio.create_task(case.intake.pull(case.items.append, lambda: False))
        await asyncio.sleep(0.01)
        case.now = 7
        case.queue.answers.set()
        await asyncio.sleep(0.01)
        case.intake.stop()
        await pull

    asyncio.run(session())
    assert [item.lease.deadline_s for item in case.items] == [30]


@pytest.mark.parametrize(
    ("retry_s", "seconds"),
    [
        (10, [10, 20, 40, 80, 160, 320, 640, 900, 900, 900, 900, 900, 900]),
        (0.5, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512, 512]),
        (0, [0] * 13),
        (2000, [900] * 13),
    ],
)
def test_a_failure_hides_a_message_for_twice_as_long_up_to_a_quarter_of_an_hour(
    retry_s: float, seconds: list[int]
) -> None:
    messages = [Message(f"{n}", f"{n}", BODY, n) for n in range(1, len(seconds) + 1)]
    case = Case(messages, retry_s=retry_s)
    case.queue.max_receives = 100
    case.run(partial(fail, case, ItemError("download", "HTTP 503")))
    hidden = [("hide", (message.handle, s)) for message, s in zip(messages, seconds, strict=True)]
    assert case.queue.calls == hidden


def fail(case: Case, error: ItemError, item: Item) -> None:
    case.intake.failed(item.lease, error, "r")


@pytest.mark.parametrize("outcome", [False, QueueRefusal("delete", "AccessDenied", "")])
def test_a_refused_delete_is_released_and_not_tried_again(outcome: object) -> None:
    case = Case([Message("a", "a1", BODY)])
    case.queue.outcomes = [outcome]
    counts = list[int]()

    async def note() -> None:
        async with asyncio.timeout(5):
            await case.intake.finish()
        counts.append(len(case.intake.leases))

    assert case.run(case.intake.delivered, note) == 0
    assert (counts, case.queue.calls) == ([0], [("delete", "a1")])


async def finished(case: Case) -> None:
    async with asyncio.timeout(5):
        await case.intake.finish()


def test_a_delete_is_tried_until_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is held meanwhile: heartbeats hide it."""
    monkeypatch.setattr(intake, "backoff_s", lambda attempt: 0.001)
    case = Case([Message("a", "a1", BODY), Message("b", "b1", BODY)])
    case.queue.outcomes = [None, True, None, None, None]
    answer, counts = case.queue._answer, list[int]()

    def answer_counting(action: str, entries: list[Any]) -> list[bool | None]:
        counts.append(len(case.intake.leases))
        return answer(action, entries)

    case.queue._answer = answer_counting  # type: ignore[method-assign]
    assert case.run(case.intake.delivered, partial(finished, case)) == 0
    deletes = [("delete", "a1"), ("delete", "b1")]
    assert case.queue.calls == [*deletes, *[deletes[0]] * 4]
    assert counts == [2, 1, 1, 1, 1]


def test_a_return_is_tried_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it comes back by itself, and is not counted as left, as its time is soon over."""
    monkeypatch.setattr(intake, "backoff_s", lambda attempt: 0.001)
    case = Case([Message("a", "a1", BODY)])
    case.queue.outcomes = [None] * 3
    error = ItemError("download", "HTTP 503")

    async def wait() -> None:
        async with asyncio.timeout(5):
            while len(case.queue.calls) < 3:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)

    assert case.run(partial(fail, case, error), wait) == 0
    assert case.queue.calls == [("hide", ("a1", 10))] * 3


def test_a_dead_letter_whose_lease_is_over_is_not_sent() -> None:
    """Redelivery brings it again, perhaps to another process."""
    case = Case([Message("a", "a1", BODY)])

    def late(item: Item) -> None:
        case.intake.failed(item.lease, ItemError("decode", "truncated", True), "r")
        case.now = 30

    case.run(late)
    assert [call for call in case.queue.calls if call[0] == "bury"] == []
    assert case.count("dead_lettered") == 0


def test_a_message_that_is_held_is_not_worked_on_twice() -> None:
    case = Case([Message("a", "a1", BODY)], [Message("a", "a2", BODY, 2)])
    assert case.run() == 0
    assert len(case.items) == 1
    assert case.queue.calls == [("hide", ("a2", 0))]  # by its newer handle


def test_a_settled_message_that_comes_again_is_deleted_by_its_newer_handle() -> None:
    """The older one, whose delete is on its way, deletes nothing any more."""
    case = Case([Message("a", "a1", BODY)])
    answer = case.queue._answer

    def answer_late(action: str, entries: list[Any]) -> list[bool | None]:
        if entries == ["a1"]:
            case.now = 30  # also after its time: it is settled
            case.intake._take(Message("a", "a2", BODY, 2), case.now, case.items.append)
        return answer(action, entries)

    case.queue._answer = answer_late  # type: ignore[method-assign]
    assert case.run(case.intake.delivered, partial(finished, case)) == 0
    assert case.queue.calls == [("delete", "a1"), ("delete", "a2")]
    assert len(case.items) == 1


def test_a_message_that_comes_again_after_its_time_is_worked_on_again() -> None:
    """Before a heartbeat looks for it: what was done for the first delivery may be given up."""
    case = Case([Message("a", "a1", BODY)])

    async def come_again() -> None:
        case.now = 30
        case.intake._take(Message("a", "a2", BODY, 2), case.now, case.items.append)

    assert case.run(then=come_again) == 0
    assert [case.intake.leases.usable(item.lease) for item in case.items] == [False, False]
    assert (case.count("lost"), case.count("returned")) == (1, 1)
    assert case.queue.calls == [("hide", ("a2", 0))]


def test_an_extension_that_is_accepted_after_its_time_comes_too_late() -> None:
    """The work may be dropped already: heartbeats would then hold the message without work."""
    case = Case([Message("a", "a1", BODY)])
    answer = case.queue._answer

    def answer_late(action: str, entries: list[Any]) -> list[bool | None]:
        case.now = 30
        return answer(action, entries)

    async def beat() -> None:
        case.queue._answer = answer_late  # type: ignore[method-assign]
        case.now = 10
        beating = asyncio.create_task(case.intake.heartbeat())
        await asyncio.sleep(0.02)
        beating.cancel()
        assert not case.intake.leases.usable(case.items[0].lease)

    assert case.run(then=beat) == 0
    assert case.queue.calls[0] == ("hide", ("a1", 30))


def test_heartbeat_at_a_third_again_after_a_sixth_until_accepted() -> None:
    clock = Clock()
    leases = Leases(30, clock)
    clock.now += 2
    lease = leases.receive(Message("a", "a1", ""), 100)
    clock.now = 109
    assert (leases.due(), leases.lag_s()) == ([], 0)
    clock.now = 111
    assert leases.lag_s() == pytest.approx(1)
    assert leases.due() == [lease]
    assert leases.due() == []  # asked; no answer
    clock.now = 116
    assert leases.due() == [lease]
    leases.renew(lease, 116)
    clock.now = 145
    assert (leases.usable(lease), leases.expire()) == (True, [])
    assert leases.due() == [lease]


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["receive", "beat", "answer", "wait"]), max_size=60))
def test_never_held_beyond_the_queue_s_own_deadline(steps: list[str]) -> None:
    """The queue counts from when it answers, which is later than when it was asked."""
    clock = Clock()
    leases = Leases(9, clock)
    visible_s, asked = 0.0, list[tuple[str, float]]()
    n = 0
    for step in steps:
        if step == "receive" and visible_s <= clock.now:
            n += 1
            leases.receive(Message("a", f"h{n}", "", n), clock.now - 0.5)
            visible_s = clock.now + 9
        elif step == "beat":
            asked += [(lease.message.handle, clock.now) for lease in leases.due()]
        elif step == "answer" and asked:
            handle, at = asked.pop(0)
            ours = leases.all()
            if handle == f"h{n}" and visible_s > clock.now:
                visible_s = clock.now + 9
                for lease in ours:
                    leases.renew(lease, at)
        elif step == "wait":
            clock.now += 1
            leases.expire()
        for lease in leases.all():
            assert not leases.usable(lease) or lease.deadline_s <= visible_s


def finish(bound: Bound, clock: Clock, n: int, seconds: float) -> None:
    """So many messages leave, evenly over these seconds."""
    for _ in range(n):
        clock.now += seconds / n
        bound.finished()


@pytest.mark.parametrize(
    ("least", "most", "rate", "expected"),
    [
        (50, 2000, 0, 50),  # no rate yet
        (50, 2000, 1, 50),  # 30 are fewer than one batch and all connections need
        (50, 2000, 2, 60),
        (50, 2000, 40, 1200),
        (50, 2000, 67, 2000),
        (500, 200, 0, 200),  # never more than the settings allow
        (500, 200, 1, 200),
    ],
)
def test_bound_is_visibility_times_rate_between_its_limits(
    least: int, most: int, rate: int, expected: int
) -> None:
    bound = Bound(30, least, most, Clock())
    bound.rate = rate
    assert bound() == expected


def test_rate_is_a_mean_of_windows_of_a_second_each_half_as_heavy_as_the_next() -> None:
    clock = Clock()
    bound = Bound(30, 20, 2000, clock)
    finish(bound, clock, 7, 0.875)
    assert bound.rate == 0  # the window is not over
    finish(bound, clock, 1, 0.125)
    assert bound.rate == pytest.approx(8)
    finish(bound, clock, 16, 1)
    assert bound.rate == pytest.approx((8 + 16) / 2)
    finish(bound, clock, 1, 2)  # nothing left for two seconds
    assert bound.rate == pytest.approx((12 + 0.5) / 2)
