"""Inference on a device, and the clock of its events."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, pairwise, repeat
from typing import Any

import numpy as np
import pytest
import torch

from harness.engines import inference as module
from harness.engines.event_clock import EventClock
from harness.engines.inference import OnGpu, OnHost, Span, open_inference
from harness.engines.pipeline import DeviceStages, null_stages
from harness.engines.writer import Writer
from harness.spec import Recipe
from tests import fake_cuda
from tests.devices import Device
from tests.fake_cuda import MS, HostClock
from wallclock.errors import Unavailable
from wallclock.loader.batch import Batch
from wallclock.stages import transfer

# --- event clock ----------------------------------------------------------------------------------


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


# --- inference ------------------------------------------------------------------------------------


BATCH: Batch = Batch(["a"], [0], np.zeros((1, 3, 2, 2), np.float32))


def sleeping(clock: Any, times_ms: tuple[int, int, int]) -> DeviceStages:
    """Device stages that take so long, by advancing a clock."""

    def stage(ms: int) -> Any:
        def run(value: Any) -> Any:
            clock(ms * MS)
            return value

        return run

    h2d, forward, d2h = (stage(ms) for ms in times_ms)
    return replace(null_stages()[1], h2d=h2d, forward=forward, d2h=d2h)


def writer() -> tuple[Writer, list[Any]]:
    written: list[Any] = []
    return Writer(lambda ids, vectors: written.append((ids, vectors)), lambda: None), written


def check(spans: list[Span], times_ms: tuple[int, int, int]) -> None:
    assert [(name, took) for name, _, took in spans] == [
        (name, ms * MS) for name, ms in zip(("h2d", "forward", "d2h"), times_ms, strict=True)
    ]
    assert all(after >= at + took for (_, at, took), (_, after, _) in pairwise(spans))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> fake_cuda.Device:
    device = fake_cuda.install(monkeypatch)
    monkeypatch.setattr(module, "perf_counter_ns", device.clock)
    return device


@pytest.mark.parametrize("in_flight", [0, 2])
def test_event_spans(cuda: fake_cuda.Device, in_flight: int) -> None:
    times = (1, 4, 0)
    stages = sleeping(cuda.work, times)
    sink, written = writer()
    inference = OnGpu(stages, sink, in_flight)
    batch = replace(BATCH, images=torch.zeros(1, 3))
    for number in range(5):
        inference.submit(replace(batch, ids=[str(number)]), 0)
        assert len(written) == max(0, number + 1 - in_flight)
        assert len(inference._queued) <= in_flight
    inference.finish()
    assert [ids for ids, _ in written] == [[str(number)] for number in range(5)], "in order"
    assert inference.lane == "gpu"
    for spans in inference.spans:
        check(spans, times)
    assert cuda.waits == 10, "forward waits for its copy in, the copy out for its forward"


def test_only_threads_overlap_on_a_gpu(cuda: fake_cuda.Device) -> None:
    sink, _ = writer()
    for engine, in_flight in (("serial", 0), ("dataloader", 0), ("threads", 2)):
        recipe = Recipe("x", engine=engine, device="cuda")
        embedder = replace(null_stages()[1], device="cuda")
        inference = open_inference(embedder, recipe, sink)
        assert isinstance(inference, OnGpu)
        assert inference._streams._max_in_flight == in_flight
        inference._streams.mark()
        assert cuda.blocking == (in_flight > 0), "a plain loop polls, which takes a core"
    assert isinstance(open_inference(null_stages()[1], Recipe("x"), sink), OnHost)


@pytest.mark.parametrize(
    ("cuda", "driver", "reason"),
    [
        (
            "13.0",
            "535.183.06",
            "for CUDA 13.0, it needs driver 580; here: 535.183.06; .* CUDA=128\\)$",
        ),
        ("13.0", "580.65.06", "sees no CUDA device$"),
        ("12.8", "470.82.01", "needs driver 525; here: 470.82.01; update it$"),
        (None, "580.65.06", "it is built without CUDA, and Tesla T4 is here; install torch"),
    ],
)
def test_a_gpu_that_torch_cannot_use(
    cuda: str | None, driver: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = [{"name": "Tesla T4", "driver": driver}]
    monkeypatch.setattr("wallclock.machine.gpus", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    with pytest.raises(Unavailable, match=reason):
        transfer.make("cuda")
