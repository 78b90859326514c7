"""The measuring loop: batches from a loader, with or without an inference step behind it."""

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter_ns

import numpy as np
import numpy.typing as npt

from harness.engines.inference import TimedInference
from harness.engines.writer import Writer
from harness.protocols.protocol import Progress
from wallclock.clock import STAGES
from wallclock.errors import UserError, describe
from wallclock.loader.batch import Batch


@dataclass
class PassResult:
    """What the batches of a pass left.

    `samples`: ns by stage, summed over processes where stages overlap; `wait`, from requesting a
    batch to having it; `batch`, from requesting it to its vectors in the sink; `latency`, of every
    image, from the start of its `read` in whatever process that was to its batch's vectors on the
    host, all queues included; none of a loader that does not mark its images. `spans`: (lane,
    stage, batch, start, duration), ns from the start of the pass. `labels`: what ran, as it says
    itself.
    """

    samples: "dict[str, array[int]]" = field(
        default_factory=lambda: {name: array("q") for name in (*STAGES, "wait", "batch", "latency")}
    )
    spans: list[tuple[str, str, int, int, int]] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    images: int = 0
    batches: int = 0
    wall_ns: int = 0
    #: What the main thread spent most of the pass on or waiting for: loader, forward or sink.
    limited_by: str = ""


#: Batches so far and ns since the start → whether the pass is complete.
Until = Callable[[int, int], bool]


def after(count: int) -> Until:
    """Stop after so many batches."""
    return lambda batches, elapsed_ns: batches >= count


def steady(seconds: float, at_least: int, burst: int) -> Until:
    """Stop after `seconds` and `at_least` batches, between two bursts.

    Workers that began together finish together: complete bursts start and end in the same phase.
    """
    return lambda batches, elapsed_ns: (
        batches >= at_least and elapsed_ns >= seconds * 1e9 and batches % burst == 0
    )


def run_pass(
    loader: Iterable[Batch],
    until: Until | None,
    progress: Progress,
    *,
    inference: TimedInference | None = None,
    max_failures: int = 0,
    span_batches: int = 0,
    clock: Callable[[], int] = perf_counter_ns,
) -> PassResult:
    """Take batches until `until` says so, or all of them for None, and wait for the last vectors.

    The clock runs from the request of the first batch until the sink's file is complete, or without
    an inference step until the last batch is there.

    Args:
        span_batches: of how many batches the spans are kept.

    Raises:
        UserError: more than `max_failures` images failed.
    """
    result = PassResult()
    start = clock()
    collector = _SpanCollector(result, inference, span_batches, start)
    batches = iter(loader)
    while until is None or not until(result.batches, clock() - start):
        requested = clock()
        batch = next(batches, None)
        if batch is None:
            break
        result.samples["wait"].append(clock() - requested)
        if inference is not None and batch.ids:
            inference.submit(batch, requested)
        collector.add(batch, requested)
        if len(result.failures) > max_failures:
            raise UserError(
                f"more than max_failures={max_failures} images failed; the last, "
                f"{describe(result.failures[-1])}"
            )
        progress(result.images)
    if inference is not None:
        inference.finish()
    result.wall_ns = clock() - start
    collector.collect()
    if inference is not None:
        _attribute(result, inference.writer)
    return result


def _attribute(result: PassResult, writer: Writer) -> None:
    """What the main thread spent the pass on, or waited for."""
    inline = writer.lane == "main"
    sink_ns = sum(result.samples["serialize"]) if inline else writer.wait_ns
    loader_ns = sum(result.samples["wait"])
    main = {"loader": loader_ns, "sink": sink_ns, "forward": result.wall_ns - loader_ns - sink_ns}
    result.limited_by = max(main, key=lambda name: main[name])


class _SpanCollector:
    """Adds durations, and the first batches' spans, to the result."""

    def __init__(
        self, result: PassResult, inference: TimedInference | None, span_batches: int, start: int
    ) -> None:
        self._result, self._inference = result, inference
        self._span_batches, self._start = span_batches, start
        #: Of every batch that was embedded: when each of its images was taken up, by worker.
        self._asked: list[list[npt.NDArray[np.int64]]] = []

    def add(self, batch: Batch, requested: int) -> None:
        """Count a batch, with its loader's marks."""
        result, number = self._result, self._result.batches
        asked = []
        # A loader alone is timed by its batches; adding up marks would compete with its threads.
        for marks in batch.extras.marks if self._inference else ():
            times = marks.times
            durations = np.diff(times, axis=1)
            for column, stage in enumerate(marks.stages):
                result.samples[stage].frombytes(durations[:, column].tobytes())
            if marks.stages[0] == "read":
                asked.append(times[:, 0])
            if number < self._span_batches:
                for moments in times.tolist():
                    for stage, began, ended in zip(
                        marks.stages, moments, moments[1:], strict=False
                    ):
                        self._span(marks.lane, stage, number, began, ended - began)
        if batch.ids:
            self._asked.append(asked)
        if number < self._span_batches:
            self._span("main", "wait", number, requested, result.samples["wait"][-1])
        result.failures += batch.failures
        result.labels |= batch.extras.labels
        result.images += len(batch.ids)
        result.batches += 1

    def collect(self) -> None:
        """Add what the device and the writer did with the batches."""
        inference, result = self._inference, self._result
        if inference is None:
            return
        writer = inference.writer
        for number, spans in enumerate(inference.spans):
            for stage, began, duration in spans:
                result.samples[stage].append(duration)
                self._span(inference.lane, stage, number, began, duration)
            _, began, duration = spans[-1]
            for asked in self._asked[number]:
                result.samples["latency"].frombytes((began + duration - asked).tobytes())
        for number, write in enumerate(writer.written):
            duration = write.ended - write.began
            result.samples["serialize"].append(duration)
            self._span(writer.lane, "serialize", number, write.began, duration)
            if write.requested:
                result.samples["batch"].append(write.ended - write.requested)

    def _span(self, lane: str, stage: str, number: int, began: int, duration: int) -> None:
        if number < self._span_batches:
            self._result.spans.append((lane, stage, number, began - self._start, duration))
