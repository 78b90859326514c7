"""What is done with a message at the queue: a queue in memory that refuses and fails on request."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from wallclock.service import intake
from wallclock.service.intake import Intake, Item
from wallclock.service.interface import ItemError
from wallclock.service.leases import Bound, Message
from wallclock.service.metrics import Metrics
from wallclock.service.settings import ServiceSettings
from wallclock.service.sqs import Queue, QueueError

BODY = '{"url": "u", "callback_url": "c"}'


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "backoff_s", lambda attempt: 0.001)


class FakeQueue:
    """Delivers the lists of `deliveries`; records calls. `outcomes` of the next batch calls.

    A receive in whose place there is an error raises it; `receives` has the arguments of all.
    """

    def __init__(self, *deliveries: list[Message] | QueueError, visibility_s: int = 30) -> None:
        self.visibility_s, self.max_receives = visibility_s, 3
        self.credentials, self.region = None, ""
        self.deliveries, self.calls = [*deliveries], list[tuple[str, Any]]()
        self.outcomes: list[Any] = []
        self.receives = list[tuple[int, int]]()
        #: Set as soon as receives are answered; None: at once.
        self.answers: asyncio.Event | None = None

    async def receive(self, most: int, wait_s: int) -> list[Message]:
        self.receives.append((most, wait_s))
        await (self.answers.wait() if self.answers else asyncio.sleep(0))
        delivery = self.deliveries.pop(0) if self.deliveries else []
        if isinstance(delivery, QueueError):
            raise delivery
        return delivery

    async def delete(self, handles: Sequence[str]) -> list[bool | None]:
        return self._answer("delete", [*handles])

    async def hide(self, changes: Sequence[tuple[str, int]]) -> list[bool | None]:
        return self._answer("hide", [*changes])

    async def bury(self, message: Message, error: ItemError) -> None:
        self._answer("bury", [(message.body, str(error))])

    def _answer(self, action: str, entries: list[Any]) -> list[bool | None]:
        self.calls += [(action, entry) for entry in entries]
        outcomes = [self.outcomes.pop(0) if self.outcomes else True for _ in entries]
        if isinstance(outcomes[0], QueueError):
            raise outcomes[0]
        return outcomes


class Case:
    def __init__(
        self,
        *deliveries: list[Message] | QueueError,
        visibility_s: int = 30,
        held: int = 100,
        wait_s: int = 0,
        retry_s: float = 10,
    ) -> None:
        self.now = 0.0
        self.metrics = Metrics()
        self.items: list[Item] = []
        self.queue = FakeQueue(*deliveries, visibility_s=visibility_s)
        self.intake = Intake(
            cast(Queue, self.queue),
            Bound(30, held, held),
            self.metrics,
            ServiceSettings(wait_s=wait_s, retry_s=retry_s),
            clock=lambda: self.now,
        )

    def run(
        self,
        act: Callable[[Item], object] = lambda item: None,
        then: Any = None,
        limit_s: float = 1,
    ) -> int:
        """Pull until all deliveries are taken, `act` on each item; then the end."""

        async def session() -> int:
            taken = (self.items.append, lambda: False)
            pull = asyncio.create_task(self.intake.pull(*taken))
            beat = asyncio.create_task(self.intake.heartbeat())
            seen = 0
            for _ in range(8):
                await asyncio.sleep(0.005)
                for item in self.items[seen:]:
                    act(item)
                seen = len(self.items)
            if then:
                await then()
            self.intake.stop()
            await pull
            beat.cancel()
            return await self.intake.give_back(limit_s)

        return asyncio.run(session())

    def count(self, outcome: str) -> float:
        value: float = self.metrics.outcome[outcome]._value.get()
        return value


def test_refused_heartbeat_ends_the_work() -> None:
    case = Case([Message("a", "a1", BODY), Message("b", "b1", BODY)])
    case.queue.outcomes = [False, True]

    async def later() -> None:
        case.now = 11  # a third of the visibility timeout
        beat = asyncio.create_task(case.intake.heartbeat())
        await asyncio.sleep(0.02)
        beat.cancel()

    assert case.run(then=later) == 0
    assert case.queue.calls[:2] == [("hide", ("a1", 30)), ("hide", ("b1", 30))]
    assert [case.intake.leases.usable(item.lease) for item in case.items] == [False, False]
    assert (case.count("lost"), case.count("returned")) == (1, 1)
    error = ItemError("process", "late")
    case.intake.failed(case.items[0].lease, error, "r")  # nothing more is done for it
    assert case.queue.calls[2:] == [("hide", ("b1", 0))]


@pytest.mark.parametrize(
    ("visibility_s", "wait_s", "expected"),
    [(30, 5, 5), (30, 20, 10), (12, 5, 4), (6, 5, 2), (2, 5, 0), (30, 0, 0)],
)
def test_a_receive_waits_for_a_third_of_the_visibility_at_most(
    visibility_s: int, wait_s: int, expected: int
) -> None:
    case = Case(visibility_s=visibility_s, wait_s=wait_s)
    case.run()
    assert {*case.queue.receives} == {(10, expected)}


def ten(name: str) -> list[Message]:
    return [Message(f"{name}{n}", f"{name}{n}", BODY) for n in range(10)]


@pytest.mark.parametrize(
    ("held", "n_received"), [(9, 0), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3), (99, 4)]
)
def test_no_more_is_received_than_may_be_held(held: int, n_received: int) -> None:
    """A receive may bring ten."""
    case = Case(ten("a"), ten("b"), ten("c"), ten("d"), held=held)
    held_then = list[int]()

    async def note() -> None:
        held_then.append(len(case.intake.leases))

    case.run(then=note)
    assert held_then == [10 * n_received]


def test_nothing_is_received_while_the_buffers_are_full() -> None:
    case, pressed = Case(ten("a")), [True]

    async def session() -> None:
        pull = asyncio.create_task(case.intake.pull(case.items.append, lambda: pressed[0]))
        await asyncio.sleep(0.02)
        assert case.queue.receives == []
        pressed[0] = False
        async with asyncio.timeout(10):
            while not case.items:
                await asyncio.sleep(0.01)
        case.intake.stop()
        await pull

    asyncio.run(session())


def test_a_receive_that_fails_is_tried_again_and_leaves_no_room_taken() -> None:
    case = Case(QueueError("gone"), QueueError("gone"), ten("a"), held=10)
    case.run()
    assert len(case.items) == 10


def test_what_arrives_after_the_stop_is_returned() -> None:
    case = Case([Message("a", "a1", BODY, 2)])

    async def session() -> int:
        pull = asyncio.create_task(case.intake.pull(case.items.append, lambda: False))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        case.intake.stop()
        await pull
        return await case.intake.give_back(1)

    assert asyncio.run(session()) == 0
    assert (case.items, case.queue.calls) == ([], [("hide", ("a1", 0))])
    assert case.metrics.redelivered._value.get() == 1


def test_a_pull_that_is_cut_off_returns_what_its_receive_brings() -> None:
    case = Case([Message("a", "a1", BODY)])

    async def session() -> int:
        case.queue.answers = asyncio.Event()
        pull = asyncio.create_task(case.intake.pull(case.items.append, lambda: False))
        await asyncio.sleep(0.01)
        pull.cancel()
        await asyncio.wait([pull])
        asyncio.get_running_loop().call_later(0.01, case.queue.answers.set)
        return await case.intake.give_back(5)

    assert asyncio.run(session()) == 0
    assert (case.items, case.queue.calls) == ([], [("hide", ("a1", 0))])
