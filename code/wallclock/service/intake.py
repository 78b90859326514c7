"""The queue's side: pulls what there is room for, holds it by heartbeats, settles or returns it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Generic, TypeVar

import numpy as np

from wallclock.fetch.retries import backoff_s
from wallclock.service.interface import ItemError, Request
from wallclock.service.leases import Bound, Lease, Leases, Message
from wallclock.service.logs import event
from wallclock.service.metrics import Metrics
from wallclock.service.settings import ServiceSettings
from wallclock.service.sqs import TEN, Queue, QueueError

#: Tries of a return, which redelivery makes up for in any case.
_TRIES = 3
#: Seconds in which a batch call may fill: full ones cost less.
_WAIT_S = 0.05
NO_ARRAY = np.empty(0, np.uint8)
T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Item:
    """A message on its way through the service, with what is left of it after each stage."""

    lease: Lease
    request: Request
    received_s: float
    image: bytes = b""
    array: np.ndarray = field(default_factory=lambda: NO_ARRAY)
    result: bytes = b""
    #: When it came into the buffer that it waits in, and when its first callback was tried.
    waits_since_s: float = 0
    called_back_s: float = 0
    #: Why there is no result: `result` says so to the requester.
    failure: ItemError | None = None


class Intake:
    """Messages of an open queue."""

    def __init__(
        self,
        queue: Queue,
        bound: Bound,
        metrics: Metrics,
        settings: ServiceSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue, self._bound = queue, bound
        self._metrics, self._retry_s, self._clock = metrics, settings.retry_s, clock
        self.leases: Leases = Leases(queue.visibility_s, clock)
        # Deadlines count from before the call, so waiting must take a small part of the timeout.
        self._wait_s = min(settings.wait_s, queue.visibility_s // 3)
        self._asked = 0
        self._stopped = asyncio.Event()
        self._deletes = _Grouped[Lease](
            lambda leases: queue.delete([lease.message.handle for lease in leases]),
            lambda lease, _: self.leases.release(lease),
        )
        self._returns = _Grouped[tuple[str, int]](queue.hide, self._returned, _TRIES)
        self._burials = _Grouped(self._bury, self._buried)
        self._n_returning = 0
        self._receiving: set[asyncio.Future[int]] = set()
        metrics.read("held_messages", "Messages that are held.", {"": lambda: len(self.leases)})
        metrics.read("held_limit", "Messages that may be held now.", {"": bound})
        text = "By how much the most urgent extension is late."
        metrics.read("heartbeat_lag_seconds", text, {"": self.leases.lag_s})

    # --- pulling --------------------------------------------------------------------------------

    async def pull(self, accept: Callable[[Item], None], pressed: Callable[[], bool]) -> None:
        """Receive messages until `stop`; several of these may run.

        `accept` takes an item, which must end in `delivered` or `failed`; `pressed`: whether the
        buffers hold so many bytes that nothing should be pulled.
        """
        failures = 0
        while await self._room(pressed):
            self._asked += TEN  # here, so that no other pull takes the same room
            call = asyncio.ensure_future(self._receive(accept))
            self._receiving.add(call)
            call.add_done_callback(self._receiving.discard)
            try:
                # The call goes on if this is cancelled: what it brings is to be returned.
                n_messages = await asyncio.shield(call)
            except QueueError:
                failures += 1
                await self._sleep(backoff_s(failures))
                continue
            failures = 0
            if not n_messages and not self._wait_s:
                await self._sleep(min(0.25, self.leases.visibility_s / 10))

    async def _receive(self, accept: Callable[[Item], None]) -> int:
        asked_s = self._clock()
        try:
            messages = await self._queue.receive(TEN, self._wait_s)
        finally:
            self._asked -= TEN
        for message in messages:
            self._take(message, asked_s, accept)
        return len(messages)

    async def _room(self, pressed: Callable[[], bool]) -> bool:
        """Wait until ten more messages may be held; False once stopped."""
        while not self._stopped.is_set():
            if len(self.leases) + self._asked + TEN <= self._bound() and not pressed():
                return True
            await asyncio.sleep(0.01)
        return False

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)

    def _take(self, message: Message, asked_s: float, accept: Callable[[Item], None]) -> None:
        if message.n_received > 1:
            self._metrics.redelivered.inc()
        if message in self.leases:
            self._expire()  # where its time is over, the work on it has been given up
        is_held = message in self.leases
        lease = self.leases.receive(message, asked_s)
        if is_held:  # its lease has the newer receipt handle now, which alone deletes it
            if lease.settled:
                self._deletes.add(lease)
            return
        if self._stopped.is_set():
            self._return(lease)
            return
        try:
            request = Request.parse(message.id, message.body)
        except ItemError as error:
            self.failed(lease, error, message.id)
        else:
            accept(Item(lease, request, self._clock()))

    def stop(self) -> None:
        """Pull no more; what a receive on its way still brings is returned."""
        self._stopped.set()

    # --- holding --------------------------------------------------------------------------------

    async def heartbeat(self) -> None:
        """Extend whatever is held, for ever."""
        async with asyncio.TaskGroup() as extensions:
            while True:
                self._expire()
                due = self.leases.due()
                for at in range(0, len(due), TEN):
                    extensions.create_task(self._extend(due[at : at + TEN]))
                await asyncio.sleep(min(1.0, self.leases.visibility_s / 30))

    def _expire(self) -> None:
        for lease in self.leases.expire():
            self._lost(lease, "it expired before the queue accepted an extension")

    async def _extend(self, leases: list[Lease]) -> None:
        asked_s, seconds = self._clock(), int(self.leases.visibility_s)
        changes = [(lease.message.handle, seconds) for lease in leases]
        try:
            outcomes = await self._queue.hide(changes)
        except QueueError:
            return  # they are due again, until they expire
        for lease, (handle, _), outcome in zip(leases, changes, outcomes, strict=True):
            if not self.leases.usable(lease) or handle != lease.message.handle:
                continue  # its work was given up, or it was received again, with a newer handle
            if outcome:
                self.leases.renew(lease, asked_s)
            elif outcome is False:
                self.leases.give_up(lease)
                self._lost(lease, "the queue refused an extension")

    def _lost(self, lease: Lease, reason: str) -> None:
        if not lease.settled:
            self._metrics.outcome["lost"].inc()
            event(logging.WARNING, "lease lost", lease.message.id, reason=reason)

    # --- what becomes of a message --------------------------------------------------------------

    def delivered(self, item: Item) -> None:
        """Its callback was accepted: delete the message."""
        self._settle(item.lease, "delivered")
        self._metrics.stage["total"].observe(self._clock() - item.received_s)

    def _settle(self, lease: Lease, outcome: str) -> None:
        lease.settled = True
        self._bound.finished()
        self._metrics.outcome[outcome].inc()
        self._deletes.add(lease)

    def failed(self, lease: Lease, error: ItemError, request: str) -> None:
        """Dead-letter a message, or return it to be tried again after a pause."""
        if lease.lost:
            return
        message, fields = lease.message, {"stage": error.stage, "reason": error.reason}
        if self.is_final(lease, error):
            event(logging.WARNING, "failed", request, **fields)
            self._burials.add((lease, error))
        else:
            event(logging.WARNING, "retried", request, **fields, n_received=message.n_received)
            self._retry(lease)

    def _retry(self, lease: Lease) -> None:
        self._metrics.outcome["retried"].inc()
        self._bound.finished()
        pause = self._retry_s * 2 ** min(lease.message.n_received - 1, 10)
        self._return(lease, int(min(pause, 900)))

    def is_final(self, lease: Lease, error: ItemError) -> bool:
        """Whether no other delivery is tried after this failure."""
        return error.permanent or lease.message.n_received >= self._queue.max_receives

    def _return(self, lease: Lease, seconds: int = 0) -> None:
        # At once, so that no heartbeat hides it again.
        self.leases.give_up(lease)
        self._n_returning += 1
        self._returns.add((lease.message.handle, seconds))

    def _returned(self, _: tuple[str, int], outcome: bool | None) -> None:
        # Refused: another has it, or it is visible already. Not answered: it comes back by itself,
        # a little later; but after the end it counts as left.
        if outcome is not None or not self._stopped.is_set():
            self._n_returning -= 1

    async def _bury(self, dead: list[tuple[Lease, ItemError]]) -> list[bool | None]:
        return await asyncio.gather(*(self._dead_letter(*entry) for entry in dead))

    async def _dead_letter(self, lease: Lease, error: ItemError) -> bool | None:
        """The outcome, as of `Queue.delete`."""
        if not self.leases.usable(lease):
            return False
        try:
            await self._queue.bury(lease.message, error)
        except QueueError as failure:
            return failure.outcome
        return True

    def _buried(self, dead: tuple[Lease, ItemError], outcome: bool | None) -> None:
        lease, _ = dead
        if outcome:
            self._settle(lease, "dead_lettered")
        elif self.leases.usable(lease):
            self._retry(lease)  # the queue's own redrive takes what fails

    # --- the end --------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Wait until nothing is held."""
        while len(self.leases) or self._asked:
            await asyncio.sleep(0.01)

    async def give_back(self, limit_s: float) -> int:
        """Return all that is held, and wait up to `limit_s`; how many messages are left."""
        self.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await asyncio.gather(*self._receiving, return_exceptions=True)
        for lease in self.leases.all():
            if not lease.settled:
                self._metrics.outcome["returned"].inc()
                self._return(lease)
        end_s = time.monotonic() + limit_s
        for group in (self._burials, self._returns, self._deletes):
            await group.close(end_s - time.monotonic())
        return len(self.leases) + self._n_returning


class _Grouped(Generic[T]):
    """Entries of a batch call, sent in tens, or `_WAIT_S` after the first one.

    `call` answers as `Queue.delete` does. What is not answered is tried again, up to so many
    `tries`. `done` gets each entry with its last outcome.
    """

    def __init__(
        self,
        call: Callable[[list[T]], Awaitable[list[bool | None]]],
        done: Callable[[T, bool | None], None],
        tries: float = inf,
    ) -> None:
        self._call, self._done, self._tries = call, done, tries
        self._entries: list[T] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def add(self, entry: T) -> None:
        """Send an entry soon."""
        self._entries.append(entry)
        if len(self._entries) == TEN:
            self._send()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WAIT_S, self._send)

    def _send(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._entries:
            sending = asyncio.ensure_future(self._send_until_answered(self._entries))
            self._entries = []
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    async def _send_until_answered(self, entries: list[T]) -> None:
        for attempt in count():
            try:
                outcomes = await self._call(entries)
            except QueueError as error:
                outcomes = [error.outcome] * len(entries)
            left = list[T]()
            for entry, outcome in zip(entries, outcomes, strict=True):
                if outcome is None and attempt + 1 < self._tries:
                    left.append(entry)
                else:
                    self._done(entry, outcome)
            if not left:
                return
            entries = left
            await asyncio.sleep(backoff_s(attempt))

    async def close(self, limit_s: float) -> None:
        """Send what is left, and give up what is not answered within so many seconds."""
        self._send()
        if self._sending:
            _, late = await asyncio.wait(set(self._sending), timeout=limit_s)
            for sending in late:
                sending.cancel()
