"""What this process holds of the queue, and until when: a data structure and a clock, no calls.

A deadline counts on our own monotonic clock, from before the call that received or extended the
message was sent, so it is never later than the queue's, whatever time the queue's clock shows.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: Messages are extended when this share of the visibility timeout has passed.
_EXTENDED_AFTER = 1 / 3
#: Seconds of a rate.
_WINDOW_S = 1.0


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery of a message; `n_received` counts them. `group`: of a FIFO queue."""

    id: str
    handle: str
    body: str
    n_received: int = 1
    attributes: Mapping[str, Any] | None = None
    group: str = ""


@dataclass(eq=False, slots=True)
class Lease:
    """A message that is held. `message` is its last delivery; times are of the leases' clock."""

    message: Message
    deadline_s: float = 0
    extend_at_s: float = 0
    #: The message may be another's by now, or was returned: nothing more is done for it.
    lost: bool = False
    #: Its result, or its dead letter, was delivered.
    settled: bool = False


class Leases:
    """The messages that are held, by id, for `visibility_s`."""

    def __init__(self, visibility_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.visibility_s = visibility_s
        self._clock = clock
        self._held: dict[str, Lease] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, message: Message) -> bool:
        return message.id in self._held

    def receive(self, message: Message, asked_s: float) -> Lease:
        """The lease of a message, perhaps held already, that a call sent at `asked_s` brought."""
        lease = self._held.setdefault(message.id, Lease(message))
        lease.message = message
        self.renew(lease, asked_s)
        return lease

    def renew(self, lease: Lease, asked_s: float) -> None:
        """The queue hides its message from a call on that was sent at `asked_s`."""
        lease.deadline_s = asked_s + self.visibility_s
        lease.extend_at_s = asked_s + self.visibility_s * _EXTENDED_AFTER

    def due(self) -> list[Lease]:
        """The leases to extend now, the most urgent first; due again half of the interval later."""
        now = self._clock()
        due = [lease for lease in self._held.values() if lease.extend_at_s <= now]
        for lease in due:
            lease.extend_at_s = now + self.visibility_s * _EXTENDED_AFTER / 2
        return sorted(due, key=lambda lease: lease.deadline_s)

    def lag_s(self) -> float:
        """By how much the most urgent extension is late."""
        first = min((lease.deadline_s for lease in self._held.values()), default=float("inf"))
        return max(0.0, self._clock() - first + self.visibility_s * (1 - _EXTENDED_AFTER))

    def expire(self) -> list[Lease]:
        """Lose those whose time is over; not the settled ones, which only wait for their delete."""
        now = self._clock()
        unsettled = [lease for lease in self._held.values() if not lease.settled]
        expired = [lease for lease in unsettled if lease.deadline_s <= now]
        for lease in expired:
            self.give_up(lease)
        return expired

    def give_up(self, lease: Lease) -> None:
        """Hold it no longer, and do nothing more for it."""
        lease.lost = True
        self.release(lease)

    def usable(self, lease: Lease) -> bool:
        """Whether work on it is worth going on with: no one else can have the message."""
        return not lease.lost and self._clock() < lease.deadline_s

    def release(self, lease: Lease) -> None:
        """Hold it no longer; nothing happens if it is not held."""
        if self._held.get(lease.message.id) is lease:
            del self._held[lease.message.id]

    def all(self) -> list[Lease]:
        """All of them."""
        return list(self._held.values())


class Bound:
    """How many messages may be held: as many as one visibility timeout suffices for.

    `rate`: messages per second, the mean of the last windows, each half as heavy as the next one.
    `least`: one batch and all connections. It keeps messages free for other processes, bounds the
    work that a kill repeats, and is the second line of defence after heartbeats.
    """

    def __init__(
        self,
        visibility_s: float,
        least: int,
        most: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._visibility_s = visibility_s
        self._least, self._most = least, most
        self._clock, self._since_s = clock, clock()
        self._n = 0
        self.rate: float = 0.0

    def finished(self) -> None:
        """One message has left: its result was delivered, or it has failed."""
        self._n += 1
        span_s = self._clock() - self._since_s
        if span_s >= _WINDOW_S:
            rate = self._n / span_s
            self.rate = (self.rate + rate) / 2 if self.rate else rate
            self._n, self._since_s = 0, self._clock()

    def __call__(self) -> int:
        """Messages that may be held now."""
        return min(max(int(self._visibility_s * self.rate), self._least), self._most)
