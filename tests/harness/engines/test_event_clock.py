"""Events of a device on the host's clock: right after hours, however fast the device's runs."""

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import pytest
import torch

from harness.engines.event_clock import EventClock
from tests import fake_cuda
from tests.devices import Device
from tests.fake_cuda import MS, HostClock

HOUR = 3_600_000 * MS
#: What the times of spans may be off.
NEAR = 10_000


def new_event() -> Any:
    cuda: Any = torch.cuda  # untyped in torch
    return cuda.Event(enable_timing=True)


def test_an_event_lies_between_its_record_and_its_wait(device: Device) -> None:
    host = HostClock()
    clock = EventClock(torch.cuda, host)
    for wait_ms in (0, 1, 30, 200):
        before = clock.anchor()
        device.keep_busy(wait_ms)
        device.synchronize()
        event = new_event()
        began = host()
        event.record()
        event.synchronize()
        ended = host()
        for _ in range(2):  # from the anchor that was the latest, and from one after the event
            off = NEAR + clock.error_ns
            assert began - off <= clock.host_ns(event, before) <= ended + off
            clock.anchor()


def test_neither_rounding_nor_drift_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    device = fake_cuda.install(monkeypatch)
    device.drift = 100e-6
    clock = EventClock(torch.cuda, device.clock)
    first, worst_of_one_anchor = clock.anchor(), 0.0
    for _ in range(20):
        device.clock.now += HOUR
        before = clock.anchor()
        events = []
        for _ in range(4):
            device.work(100 * MS)
            events.append(new_event())
            events[-1].record()
        for event in events:
            event.synchronize()
            device.clock.now += 5 * MS  # other threads had the core
            clock.anchor()
            at = event.at
            assert abs(clock.host_ns(event, before) - at) < NEAR
            alone = first.host_ns + first.event.elapsed_time(event) * 1e6
            worst_of_one_anchor = max(worst_of_one_anchor, abs(alone - at))
    assert worst_of_one_anchor > 1000 * NEAR


def test_an_anchor_that_was_interrupted_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is read twice a try: these are interrupted for 1 ms, 30 µs and not at all."""
    fake_cuda.install(monkeypatch)
    waits: Iterator[int] = chain([0, MS, 0, 30_000, 0, 4_000], repeat(0))
    now = 0

    def clock() -> int:
        nonlocal now
        now += next(waits)
        return now

    events = EventClock(torch.cuda, clock)
    assert events.error_ns == events.anchor().error_ns == 2_000
    assert events.anchor().host_ns == MS + 30_000 + 2_000
