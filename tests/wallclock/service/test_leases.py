"""What is held, and until when: with a clock that the test turns."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallclock.service.leases import Lease, Leases, Message


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def hold_message(visibility_s: float = 30) -> tuple[Clock, Leases, Lease]:
    """A message that a call of second 100 has brought by second 102."""
    clock = Clock()
    leases = Leases(visibility_s, clock, remembered=2)
    clock.now += 2
    kind, lease = leases.receive(Message("a", "a1", ""), 100)
    assert kind == "new"
    return clock, leases, lease


def test_heartbeat_at_a_third_again_after_a_sixth_until_accepted() -> None:
    clock, leases, lease = hold_message()
    clock.now = 109
    assert (leases.due(), leases.lag_s()) == ([], 0)
    clock.now = 111
    assert leases.lag_s() == pytest.approx(1)
    assert leases.due() == [lease]
    assert leases.due() == []  # asked; no answer
    clock.now = 116
    assert leases.due() == [lease]
    leases.extended(lease, "a1", 116)
    clock.now = 145
    assert (leases.usable(lease), leases.expire()) == (True, [])
    assert leases.due() == [lease]


def test_extensions_are_asked_for_in_the_order_of_their_deadlines() -> None:
    clock = Clock()
    leases = Leases(30, clock)
    for name, asked_s in (("late", 108), ("first", 101), ("last", 109), ("second", 105)):
        leases.receive(Message(name, name, ""), asked_s)
    clock.now = 118.5  # a third of the timeout after 108.5
    assert leases.lag_s() == pytest.approx(7.5)  # of the first
    assert [lease.message.id for lease in leases.due()] == ["first", "second", "late"]
    clock.now = 119
    assert [lease.message.id for lease in leases.due()] == ["last"]
    clock.now = 123.5  # a sixth after the first call, which was not answered
    assert [lease.message.id for lease in leases.due()] == ["first", "second", "late"]


def test_only_what_is_over_expires() -> None:
    clock = Clock()
    leases = Leases(30, clock)
    for number in range(4):
        leases.receive(Message(f"{number}", "h", ""), 100 + number)
    clock.now = 131
    assert [lease.message.id for lease in leases.expire()] == ["0", "1"]
    assert [lease.message.id for lease in leases.all()] == ["2", "3"]
    assert leases.lag_s() == pytest.approx(131 - 102 - 10)
    assert Leases(30, clock).lag_s() == 0


def test_delivered_again_while_held() -> None:
    """The newer handle counts; what is said of the older one changes nothing."""
    clock, leases, lease = hold_message()
    clock.now = 120
    assert leases.receive(Message("a", "a2", "", 2), 119) == ("held", lease)
    assert (lease.message.handle, lease.deadline_s) == ("a2", 149)
    assert not leases.refused(lease, "a1")
    leases.extended(lease, "a1", 125)
    assert lease.deadline_s == 149
    assert len(leases) == 1


def test_settled_message_is_known_when_it_comes_again() -> None:
    _, leases, lease = hold_message()
    leases.settled(lease)
    leases.release(lease)
    kind, again = leases.receive(Message("a", "a2", "", 2), 103)
    assert (kind, again.message.handle) == ("settled", "a2")
    for name, still in (("b", True), ("c", False)):  # two are remembered
        leases.settled(leases.receive(Message(name, name, ""), 103)[1])
        assert leases.is_settled(lease) is still


def test_given_up() -> None:
    _, leases, lease = hold_message()
    leases.give_up(lease)
    assert (leases.all(), leases.usable(lease), leases.expire()) == ([], False, [])
    new = leases.receive(Message("a", "a2", "", 2), 103)[1]
    leases.release(lease)  # late: another lease of the message is held
    assert leases.all() == [new]


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
                    leases.extended(lease, handle, at)
        elif step == "wait":
            clock.now += 1
            leases.expire()
        for lease in leases.all():
            assert not leases.usable(lease) or lease.deadline_s <= visible_s
