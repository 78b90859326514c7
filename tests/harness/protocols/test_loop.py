"""The measuring loop on a clock that the test turns."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest

from harness.engines.inference import OnHost
from harness.engines.writer import Writer, WriteSpan
from harness.protocols.loop import after, run_pass, steady
from harness.protocols.protocol import no_progress
from tests.harness.test_profiler import FakeClock
from wallclock.errors import UserError
from wallclock.infer.network import Embedder
from wallclock.loader.batch import Batch, Extras, Marks


class FakeLoader:
    """Batches of two images, each of which takes `load_ns` in one worker."""

    def __init__(self, clock: FakeClock, load_ns: int, failures: int = 0) -> None:
        self.clock = clock
        self.load_ns = load_ns
        self.failures = failures

    def __iter__(self) -> Iterator[Batch]:
        for number in count():
            began = self.clock.now
            self.clock.now += self.load_ns
            times = np.array([[began, began + 3, began + self.load_ns]] * 2, dtype=np.int64)
            failed = [{"id": "x", "stage": "read", "reason": "gone"}] * self.failures
            marks = [Marks("worker 0", ("read", "decode"), times)]
            ids = [f"{number}-0", f"{number}-1"]
            extras = Extras(marks, {"decoder": "fake"})
            yield Batch(ids, [0, 1], np.zeros((2, 1)), failed, extras)


class Inline(Writer):
    """A writer whose sink takes `write_ns`."""

    def __init__(self, clock: FakeClock, write_ns: int) -> None:
        super().__init__(lambda ids, vectors: None, lambda: None)
        self.clock, self.write_ns = clock, write_ns
        self.ids: list[str] = []

    def put(self, ids: Any, vectors: Any, requested: int) -> None:
        began = self.clock.now
        self.clock.now += self.write_ns
        self.ids += ids
        self.written.append(WriteSpan(requested, began, self.clock.now))


def inference(clock: FakeClock, forward_ns: int, write_ns: int) -> OnHost:
    def forward(batch: Any) -> Any:
        clock.now += forward_ns
        return batch

    def identity(value: Any) -> Any:
        return value

    stages = Embedder(identity, forward, identity)
    return OnHost(stages, Inline(clock, write_ns), clock)


@pytest.mark.parametrize(
    ("load_ns", "forward_ns", "write_ns", "limit"),
    [(100, 10, 1, "loader"), (10, 100, 1, "forward"), (10, 1, 100, "sink")],
)
def test_durations_add_up(load_ns: int, forward_ns: int, write_ns: int, limit: str) -> None:
    clock = FakeClock()
    step = inference(clock, forward_ns, write_ns)
    loader = FakeLoader(clock, load_ns)
    result = run_pass(loader, after(5), no_progress, inference=step, clock=clock)
    assert (result.batches, result.images) == (5, 10)
    batch_ns = load_ns + forward_ns + write_ns
    assert result.wall_ns == 5 * batch_ns
    samples = {name: list(values) for name, values in result.samples.items() if values}
    assert samples == {
        "read": [3] * 10,
        "decode": [load_ns - 3] * 10,
        "h2d": [0] * 5,
        "d2h": [0] * 5,
        "wait": [load_ns] * 5,
        "forward": [forward_ns] * 5,
        "serialize": [write_ns] * 5,
        "batch": [batch_ns] * 5,
        "latency": [load_ns + forward_ns] * 10,  # until the vectors are there, not written
    }
    assert result.limited_by == limit
    assert result.labels == {"decoder": "fake"}


class Ahead(FakeLoader):
    """Loaded all its batches before they are requested, in two workers; of some, nothing."""

    def __iter__(self) -> Iterator[Batch]:
        for number in range(4):
            asked = np.array([[100 * number, 100 * number + 30]], dtype=np.int64)
            marks = [Marks("worker 0", ("read",), asked), Marks("worker 1", ("read",), asked + 7)]
            marks.append(Marks("worker 1", ("assemble",), asked + 30))
            if number == 1:  # every image failed: nothing is embedded
                yield Batch([], [], np.zeros((0, 1)))
            elif number == 2:  # a loader that does not mark its images
                yield Batch(["c"], [0], np.zeros((1, 1)))
            else:
                yield Batch(["a", "b"], [0, 1], np.zeros((2, 1)), [], Extras(marks))


def test_latency_includes_the_queue() -> None:
    """From the image's own read, long before its batch was requested, to its batch's vectors."""
    clock = FakeClock(1000)
    options: Any = {"inference": inference(clock, 50, 5), "clock": clock}
    result = run_pass(Ahead(clock, 0), None, no_progress, **options)
    # Vectors at 1050, 1105 (of the unmarked batch) and 1160.
    assert list(result.samples["latency"]) == [1050, 1043, 860, 853]


def test_latency_includes_the_copy_to_the_host() -> None:
    """Each of the device's stages takes time; the last one ends the latency, the sink does not."""
    clock = FakeClock()

    def taking(ns: int) -> Any:
        def stage(value: Any) -> Any:
            clock.now += ns
            return value

        return stage

    step = OnHost(Embedder(taking(5), taking(20), taking(7)), Inline(clock, 1000), clock)
    result = run_pass(FakeLoader(clock, 10), after(3), no_progress, inference=step, clock=clock)
    assert list(result.samples["latency"]) == [10 + 5 + 20 + 7] * 6


def test_the_wall_time_is_until_the_last_vector_is_written() -> None:
    """Also where a queue has to empty, or a file to be closed, behind the last batch."""
    clock = FakeClock()

    class Late(Inline):
        def finish(self) -> None:
            clock.now += 500

    same = inference(clock, 20, 5)
    same.writer = Late(clock, 5)
    result = run_pass(FakeLoader(clock, 10), after(3), no_progress, inference=same, clock=clock)
    assert result.wall_ns == 3 * 35 + 500


def test_spans_start_at_the_pass() -> None:
    clock = FakeClock()
    step = inference(clock, 20, 5)
    options: Any = {"inference": step, "span_batches": 2, "clock": clock}
    result = run_pass(FakeLoader(clock, 10), after(3), no_progress, **options)
    assert {span[2] for span in result.spans} == {0, 1}, "of two batches"
    first = [span for span in result.spans if span[2] == 0]
    assert ("worker 0", "decode", 0, 3, 7) in first
    assert ("main", "wait", 0, 0, 10) in first
    assert ("main", "forward", 0, 10, 20) in first
    assert ("main", "serialize", 0, 30, 5) in first


def test_without_inference_the_wall_is_the_waiting() -> None:
    clock = FakeClock()
    result = run_pass(FakeLoader(clock, 10), after(4), no_progress, clock=clock)
    assert (result.wall_ns, list(result.samples["wait"])) == (40, [10] * 4)
    assert result.limited_by == ""


@pytest.mark.parametrize(
    ("seconds", "at_least", "burst", "batches"),
    [(0.0, 9, 4, 12), (0.0, 8, 4, 8), (101e-9, 1, 1, 11), (101e-9, 1, 4, 12)],
)
def test_steady_stops_at_bursts(seconds: float, at_least: int, burst: int, batches: int) -> None:
    clock = FakeClock()
    until = steady(seconds, at_least, burst)
    assert run_pass(FakeLoader(clock, 10), until, no_progress, clock=clock).batches == batches


def test_max_failures() -> None:
    clock = FakeClock()
    loader = FakeLoader(clock, 10, failures=2)
    result = run_pass(loader, after(3), no_progress, max_failures=6, clock=clock)
    assert len(result.failures) == 6
    with pytest.raises(UserError, match="max_failures=5 images failed; the last, x, in read: gone"):
        run_pass(loader, after(3), no_progress, max_failures=5, clock=clock)
