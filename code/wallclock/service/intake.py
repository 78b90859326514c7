"""The queue's side: pulls what there is room for, holds it by heartbeats, settles or returns it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import TypeVar

import numpy as np

from wallclock.fetch.retries import backoff_s
from wallclock.service.interface import ItemError, Request
from wallclock.service.leases import Bound, Lease, Leases, Message
from wallclock.service.logs import event
from wallclock.service.metrics import Metrics
from wallclock.service.settings import ServiceSettings
from wallclock.service.sqs import TEN, Grouped, Queue, QueueError, QueueRefusal

#: Tries of a change that redelivery makes up for in any case.
_TRIES = 3
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
    #: Tries of its callback that have failed.
    n_callbacks: int = 0
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
        self._stopped, self._released = asyncio.Event(), asyncio.Event()
        self._deletes = Grouped(self._delete, 0.05)  # no hurry: full groups cost less
        self._changes = Grouped(self._change)
        self._extensions = Grouped(self._extend, 0)
        self._burials = Grouped(self._bury)
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
            self._released.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._released.wait(), 0.1)
        return False

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)

    def _take(self, message: Message, asked_s: float, accept: Callable[[Item], None]) -> None:
        if message.n_received > 1:
            self._metrics.redelivered.inc()
        lease = self.leases.receive(message, asked_s)
        if lease is None:
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
        self._released.set()

    # --- holding --------------------------------------------------------------------------------

    async def heartbeat(self) -> None:
        """Extend whatever is held, for ever."""
        while True:
            for lease in self.leases.expire():
                self._lost(lease, "it expired before the queue accepted an extension")
            for lease in self.leases.due():
                self._extensions.add(lease)
            await asyncio.sleep(min(1.0, self.leases.visibility_s / 30))

    async def _extend(self, leases: list[Lease]) -> None:
        asked_s, seconds = self._clock(), int(self.leases.visibility_s)
        changes = [(lease.message.handle, seconds) for lease in leases]
        try:
            outcomes = await self._queue.hide(changes)
        except QueueError:
            return  # they are due again, until they expire
        for lease, (handle, _), outcome in zip(leases, changes, outcomes, strict=True):
            if lease.lost or handle != lease.message.handle:
                continue  # it was received again meanwhile, with a newer handle
            if outcome:
                self.leases.renew(lease, asked_s)
            elif outcome is False:
                self.leases.give_up(lease)
                self._lost(lease, "the queue refused an extension")

    def _lost(self, lease: Lease, reason: str) -> None:
        self._released.set()
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
        self._released.set()
        self._n_returning += 1
        self._changes.add((lease, seconds))

    async def _delete(self, leases: list[Lease]) -> None:
        def call(left: list[Lease]) -> Awaitable[list[bool | None]]:
            return self._queue.delete([lease.message.handle for lease in left])

        def release(lease: Lease) -> None:
            self.leases.release(lease)
            self._released.set()

        await _until_answered(leases, call, release, inf)

    async def _change(self, changes: list[tuple[Lease, int]]) -> None:
        def call(left: list[tuple[Lease, int]]) -> Awaitable[list[bool | None]]:
            return self._queue.hide([(lease.message.handle, seconds) for lease, seconds in left])

        def note(_: tuple[Lease, int]) -> None:
            # What is refused is not ours any more: another has it, or it is visible already.
            self._n_returning -= 1

        left = await _until_answered(changes, call, note, _TRIES)
        if not self._stopped.is_set():
            self._n_returning -= len(left)  # it comes back by itself, a little later

    async def _bury(self, dead: list[tuple[Lease, ItemError]]) -> None:
        await asyncio.gather(*(self._dead_letter(lease, error) for lease, error in dead))

    async def _dead_letter(self, lease: Lease, error: ItemError) -> None:
        attempt = 0
        while self.leases.usable(lease):
            try:
                await self._queue.bury(lease.message, error)
                return self._settle(lease, "dead_lettered")
            except QueueRefusal:
                break
            except QueueError:
                await asyncio.sleep(backoff_s(attempt))
                attempt += 1
        if self.leases.usable(lease):
            self._retry(lease)  # the queue's own redrive takes what fails
        return None

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
        groups = (self._changes, self._deletes, self._burials)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await asyncio.gather(*(group.flush() for group in groups))
        for group in (*groups, self._extensions):
            group.close()
        return len(self.leases) + self._n_returning


async def _until_answered(
    entries: list[T],
    call: Callable[[list[T]], Awaitable[list[bool | None]]],
    done: Callable[[T], None],
    tries: float,
) -> list[T]:
    """Make a batch call until every entry was accepted or refused; those that were not."""
    for attempt in count():
        try:
            outcomes = await call(entries)
        except QueueError as error:
            outcomes = [error.outcome] * len(entries)
        answers = [*zip(entries, outcomes, strict=True)]
        for entry, outcome in answers:
            if outcome is not None:
                done(entry)
        entries = [entry for entry, outcome in answers if outcome is None]
        if not entries or attempt + 1 >= tries:
            break
        await asyncio.sleep(backoff_s(attempt))
    return entries
