"""A CUDA device whose streams run their work as late as they may, over a clock that tests turn.

Work of one stream runs in order, that of two streams at the same time, unless one waits for an
event of the other. Memory belongs to the stream that took it, as torch's allocator has it. Its
clock may run faster than the host's, and its times between events are rounded as CUDA's are.
"""

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from tests.harness.test_profiler import FakeClock

MS = 1_000_000
#: What memory of the fake device holds before anything was written to it.
NOT_YET = 77


class HostClock:
    """The host's own clock, for tests whose other parts run in real time."""

    @property
    def now(self) -> int:
        return perf_counter_ns()

    def __call__(self) -> int:
        return perf_counter_ns()


class Device:
    """What the streams of a test share.

    The host's clock does not move when the device works; it does when the host waits for an event.
    `drift`: how much faster the device's clock runs, as a share. `made`: the streams so far;
    cleared by tests that ask for the n-th from now on.
    """

    def __init__(self, clock: FakeClock | HostClock) -> None:
        self.clock: Any = clock
        self.drift = 0.0
        self.waits = 0
        self.blocking = False
        self.made: list[Stream] = []
        self.streams: list[Stream] = []
        self.memory = Memory()

    @property
    def device_ns(self) -> int:
        """When the last work ended that has run."""
        return max(stream.ended_ns for stream in self.streams)

    def work(self, ns: int) -> None:
        """Queue so much work on the current stream."""
        stream, queued_at = Stream.current, self.clock.now
        stream.put(lambda: stream.spend(queued_at, ns))

    def synchronize(self) -> None:
        """Wait for the current stream."""
        event = Event()
        event.record()
        event.synchronize()

    def synchronize_all(self) -> None:
        """Wait for every stream."""
        for stream in self.streams:
            while stream.work:
                stream.step()
        self.wait_until(self.device_ns)

    def wait_until(self, ns: int) -> None:
        """Move the host's clock to that time, if it is not there yet."""
        if isinstance(self.clock, FakeClock):
            self.clock.now = max(self.clock.now, ns)
        while self.clock() < ns:
            time.sleep(1e-4)


class Stream:
    """Its work is run when something waits for it; that of the second one made, at once."""

    device: ClassVar[Device]
    current: ClassVar["Stream"]
    #: Whether work of any stream runs now: what that queues is a part of it.
    runs: ClassVar[bool] = False

    def __init__(self) -> None:
        self.work: deque[Any] = deque()
        self.ended_ns = 0
        self.device.made.append(self)
        self.device.streams.append(self)
        self.eager = len(self.device.made) == 2

    def put(self, work: Any) -> None:
        if Stream.runs and not isinstance(work, Event):
            work()
            return
        self.work.append(work)
        while self.eager and self.work and getattr(self.work[0], "reached", True):
            self.step()

    def step(self) -> None:
        work = self.work.popleft()
        if isinstance(work, Event):
            work.reach()
            self.ended_ns = max(self.ended_ns, work.at)
            return
        before, Stream.runs = Stream.runs, True
        try:
            work()
        finally:
            Stream.runs = before

    def spend(self, queued_at: int, ns: int) -> int:
        """Work behind all earlier work of this stream; return when it ended."""
        self.ended_ns = max(self.ended_ns, queued_at) + ns
        return self.ended_ns

    def wait_event(self, event: "Event") -> None:
        self.device.waits += 1
        self.put(event)

    def wait_stream(self, stream: "Stream") -> None: ...


class Event:
    """An event, which must be waited for before its time is read. `at`: on the host's clock."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False) -> None:
        self.reached = False
        self.at = 0
        self.stream = Stream.current
        Stream.device.blocking = blocking

    def record(self, stream: Stream | None = None) -> None:
        self.stream, queued_at = stream or Stream.current, Stream.device.clock.now

        def mark_reached() -> None:
            self.reached, self.at = True, self.stream.spend(queued_at, 0)

        self.stream.put(mark_reached)

    def reach(self) -> None:
        while not self.reached:
            self.stream.step()

    def query(self) -> bool:
        return self.reached

    def synchronize(self) -> None:
        self.reach()
        Stream.device.wait_until(self.at)

    def elapsed_time(self, other: "Event") -> float:
        assert self.reached, "an event was read before it was reached"
        assert other.reached, "an event was read before it was reached"
        return float(np.float32((other.at - self.at) * (1 + Stream.device.drift) / MS))


class Memory:
    """A caching allocator: what a stream no longer needs, the same stream gets again."""

    def __init__(self) -> None:
        self.segments = self.reserved = self.allocated = self.peak = 0
        self._free: dict[Stream, list[int]] = {}

    def give(self, tensor: Any) -> Any:
        """Give a tensor of the current stream its memory, until it is dropped."""
        if Stream.runs:  # within a step, of which only the result is followed
            return tensor
        free, size = self._free.setdefault(Stream.current, []), tensor.nbytes
        block = min((block for block in free if block >= size), default=0)
        if block:
            free.remove(block)
        else:
            block = size
            self.segments += 1
            self.reserved += size
        self.allocated += size
        self.peak = max(self.peak, self.allocated)
        weakref.finalize(tensor, self._take_back, free, block, size)
        return tensor

    def _take_back(self, free: list[int], block: int, size: int) -> None:
        free.append(block)
        self.allocated -= size

    def reset_peak(self) -> None:
        self.peak = self.allocated

    def stats(self) -> dict[str, int]:
        return {"segment.all.allocated": self.segments, "num_alloc_retries": 0}


@contextmanager
def enter_stream(stream: Stream) -> Iterator[None]:
    before, Stream.current = Stream.current, stream
    yield
    Stream.current = before


def install(monkeypatch: pytest.MonkeyPatch, clock: FakeClock | HostClock | None = None) -> Device:
    """Put such a device in the place of torch.cuda's; page-locked memory is plain memory."""
    device = Device(clock or FakeClock())
    memory = device.memory
    Stream.device = device
    default = Stream()
    Stream.current = default
    device.made.clear()
    fakes = {
        "Stream": Stream,
        "Event": Event,
        "stream": enter_stream,
        "synchronize": device.synchronize_all,
        "current_stream": lambda: default,
        "is_current_stream_capturing": lambda: False,
        "get_device_name": lambda device: "a fake GPU",
        "memory_stats": memory.stats,
        "max_memory_allocated": lambda: memory.peak,
        "max_memory_reserved": lambda: memory.reserved,
        "reset_peak_memory_stats": memory.reset_peak,
        "mem_get_info": lambda: ((16 << 30) - memory.reserved, 16 << 30),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    with torch.device("meta"):  # it remembers for good which functions make tensors
        torch.zeros(0)
    monkeypatch.setattr(torch, "empty", _unpinned(torch.empty, NOT_YET))
    monkeypatch.setattr(torch, "zeros", _unpinned(torch.zeros, 0))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    copy = torch.Tensor.copy_

    def copy_(target: Any, source: Any, non_blocking: bool = False) -> Any:
        if non_blocking and Stream.current is not default:
            Stream.current.put(lambda: copy(target, source))
            return target
        return copy(target, source)

    monkeypatch.setattr(torch.Tensor, "copy_", copy_)
    return device


def _unpinned(make: Callable[..., Any], value: int) -> Callable[..., Any]:
    def make_unpinned(*size: Any, pin_memory: bool = False, **options: Any) -> Any:
        made = make(*size, **options)
        return made.fill_(value) if pin_memory else made

    return make_unpinned


def copy_late(rows: Any) -> Any:
    """Queue a copy on the current stream: it takes what the memory holds once it runs."""
    source = torch.as_tensor(rows)
    copy = Stream.device.memory.give(torch.full_like(source, NOT_YET))
    Stream.current.put(lambda: copy.copy_(source))
    return copy


def compute_late(compute: Callable[[], Any], shape: tuple[int, ...], dtype: Any) -> Any:
    """Queue a computation on the current stream; its result is there once it ran."""
    result = Stream.device.memory.give(torch.full(shape, NOT_YET, dtype=dtype))
    Stream.current.put(lambda: result.copy_(compute()))
    return result
