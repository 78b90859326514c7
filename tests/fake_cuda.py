"""A CUDA device whose streams run their work as late as they may, over a clock that tests turn."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
import torch

from tests.wallclock.test_clock import FakeClock

MS = 1_000_000


class Device:
    """What the streams of a test share: the host's clock, and when the device did its last work.

    The host's clock does not move when the device works; it does when the host waits for an event.
    """

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.device_ns = 0
        self.waits = 0
        self.blocking = False
        self.made: list[Stream] = []

    def work(self, ns: int) -> None:
        """Queue so much work on the current stream."""
        queued_at = self.clock.now
        Stream.current.put(lambda: self.spend(queued_at, ns))

    def spend(self, queued_at: int, ns: int) -> int:
        """Work behind all earlier work; return when it ended."""
        self.device_ns = max(self.device_ns, queued_at) + ns
        return self.device_ns

    def synchronize(self) -> None:
        """Wait for the current stream."""
        event = Event()
        event.record()
        event.synchronize()


class Stream:
    """Its work is run when something waits for it; that of the second one made, at once."""

    device: ClassVar[Device]
    current: ClassVar["Stream"]

    def __init__(self) -> None:
        self.work: deque[Any] = deque()
        self.device.made.append(self)
        self.eager = len(self.device.made) == 2

    def put(self, work: Any) -> None:
        self.work.append(work)
        while self.eager and self.work and getattr(self.work[0], "reached", True):
            self.step()

    def step(self) -> None:
        work = self.work.popleft()
        work.reach() if isinstance(work, Event) else work()

    def wait_event(self, event: "Event") -> None:
        self.device.waits += 1
        self.put(event)

    def wait_stream(self, stream: "Stream") -> None: ...


class Event:
    """An event, which must be waited for before its time is read."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False) -> None:
        self.reached = False
        self.at = 0
        self.stream = Stream.current
        Stream.device.blocking = blocking

    def record(self) -> None:
        self.stream, queued_at = Stream.current, Stream.device.clock.now

        def mark_reached() -> None:
            self.reached, self.at = True, Stream.device.spend(queued_at, 0)

        self.stream.put(mark_reached)

    def reach(self) -> None:
        while not self.reached:
            self.stream.step()

    def synchronize(self) -> None:
        self.reach()
        clock = Stream.device.clock
        clock.now = max(clock.now, self.at)

    def elapsed_time(self, other: "Event") -> float:
        assert self.reached, "an event was read before it was reached"
        assert other.reached, "an event was read before it was reached"
        return (other.at - self.at) / MS


@contextmanager
def enter_stream(stream: Stream) -> Iterator[None]:
    before, Stream.current = Stream.current, stream
    yield
    Stream.current = before


def install(monkeypatch: pytest.MonkeyPatch) -> Device:
    """Put such a device in the place of torch.cuda's."""
    device = Device()
    Stream.device = device
    default = Stream()
    Stream.current = default
    device.made.clear()
    fakes = {"Stream": Stream, "Event": Event, "stream": enter_stream}
    fakes |= {"synchronize": lambda: None, "current_stream": lambda: default}
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    return device
