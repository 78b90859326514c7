"""What is done with a message at the queue: a queue in memory that refuses and fails on request."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from wallclock.service.intake import Intake, Item
from wallclock.service.leases import Message
from wallclock.service.limits import Bound
from wallclock.service.metrics import Metrics
from wallclock.service.module import ItemError
from wallclock.service.sqs import QueueError

BODY = '{"url": "u", "callback_url": "c"}'


class FakeQueue:
    """Delivers the lists of `deliveries`; records calls. `outcomes` of the next batch calls."""

    visibility_s, max_receives = 30, 3

    def __init__(self, *deliveries: list[Message]) -> None:
        self.deliveries, self.calls = [*deliveries], list[tuple[str, Any]]()
        self.outcomes: list[bool | None] = []

    async def receive(self, most: int, wait_s: int) -> list[Message]:
        await asyncio.sleep(0)
        return self.deliveries.pop(0) if self.deliveries else []

    async def delete(self, handles: Sequence[str]) -> list[bool | None]:
        return self._answer("delete", [*handles])

    async def hide(self, changes: Sequence[tuple[str, int]]) -> list[bool | None]:
        return self._answer("hide", [*changes])

    async def bury(self, message: Message, error: ItemError) -> None:
        self._answer("bury", [(message.body, str(error))])

    def _answer(self, action: str, entries: list[Any]) -> list[bool | None]:
        self.calls += [(action, entry) for entry in entries]
        if self.outcomes and self.outcomes[0] is None and action == "bury":
            self.outcomes.pop(0)
            raise QueueError("refused")
        return [self.outcomes.pop(0) if self.outcomes else True for _ in entries]


class Case:
    def __init__(self, *deliveries: list[Message]) -> None:
        self.now = 0.0
        self.metrics = Metrics()
        self.items: list[Item] = []
        self.queue = FakeQueue(*deliveries)
        bound = Bound(30, 100, 100)
        times: dict[str, Any] = {"wait_s": 0, "retry_s": 10, "clock": lambda: self.now}
        self.intake = Intake(self.queue, bound, self.metrics, **times)  # type: ignore[arg-type]

    def run(self, act: Callable[[Item], object] = lambda item: None, then: Any = None) -> int:
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
            return await self.intake.give_back(1)

        return asyncio.run(session())

    def count(self, outcome: str) -> float:
        value: float = self.metrics.outcome[outcome]._value.get()
        return value


def test_delivered_is_deleted() -> None:
    case = Case([Message("a", "a1", BODY)])
    assert case.run(case.intake.delivered) == 0
    assert case.queue.calls == [("delete", "a1")]


def test_delivered_again_is_deleted_without_work() -> None:
    case = Case([Message("a", "a1", BODY)])

    def act(item: Item) -> None:
        case.intake.delivered(item)
        case.intake.leases.give_up(item.lease)  # it expired before it was deleted

    async def again() -> None:
        case.queue.deliveries = [[Message("a", "a2", BODY, 2)]]
        pull = asyncio.create_task(case.intake.pull(case.items.append, lambda: False))
        await asyncio.sleep(0.01)
        case.intake.stop()
        await pull

    assert case.run(act, again) == 0
    assert [call for call in case.queue.calls if call[1] == "a2"] == [("delete", "a2")]
    assert (len(case.items), case.count("duplicate")) == (1, 1)


@pytest.mark.parametrize(("n_received", "hidden_s"), [(1, 10), (2, 20)])
def test_transient_failure_returns_later(n_received: int, hidden_s: int) -> None:
    case = Case([Message("a", "a1", BODY, n_received)])
    error = ItemError("download", "HTTP 503")
    assert case.run(lambda item: case.intake.failed(item.lease, error, "r")) == 0
    assert case.queue.calls == [("hide", ("a1", hidden_s))]
    assert case.count("retried") == 1


@pytest.mark.parametrize(("n_received", "permanent"), [(3, False), (1, True)])
def test_last_or_permanent_failure_is_dead_lettered_then_deleted(
    n_received: int, permanent: bool
) -> None:
    case = Case([Message("a", "a1", BODY, n_received)])
    case.queue.outcomes = [None]  # the first try is refused
    error = ItemError("decode", "truncated", permanent)

    async def wait() -> None:
        async with asyncio.timeout(5):
            await case.intake.finish()

    assert case.run(lambda item: case.intake.failed(item.lease, error, "r"), wait) == 0
    buried = ("bury", (BODY, "decode: truncated"))
    assert case.queue.calls == [buried, buried, ("delete", "a1")]
    assert case.count("dead_lettered") == 1


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


def test_what_cannot_be_returned_is_counted() -> None:
    case = Case([Message("a", "a1", BODY), Message("b", "b1", BODY)])
    case.queue.outcomes = [None, True] + [None] * 2
    assert case.run() == 1
