"""The consumer's side of engine `threads`: a batch in the ring → device → vectors → the sink's thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from wallclock.engines.embedder import Span
from wallclock.engines.pipeline import Pipeline
from wallclock.engines.writer import WriterThread

#: Batches that are queued on a GPU at a time: one at work, one behind it.
IN_FLIGHT = 2


class Consumer(Protocol):
    """Takes batches through h2d, forward and d2h and hands the vectors to the sink."""

    #: Where the three happen: `gpu`, or `main` for the main process's own CPU.
    lane: str

    def submit(self, ids: Sequence[str], images: npt.NDArray[Any], asked: int) -> None:
        """Take a batch; when this returns, its buffer may be filled anew."""

    def drain(self) -> None:
        """Wait for every batch and hand it to the sink."""

    def spans(self) -> list[list[Span]]:
        """h2d, forward and d2h of every batch so far, in order, on the host's clock."""


def make(pipeline: Pipeline, device: str, sink: WriterThread) -> Consumer:
    """The consumer for a device: in this thread on a CPU, on three streams on a GPU."""
    return CudaConsumer(pipeline, sink) if device == "cuda" else HostConsumer(pipeline, sink)


class HostConsumer:
    """The forward pass runs in this thread, while the workers and the sink have theirs."""

    lane = "main"

    def __init__(self, pipeline: Pipeline, sink: WriterThread) -> None:
        self._pipeline = pipeline
        self._sink = sink
        self._spans: list[list[Span]] = []

    def submit(self, ids: Sequence[str], images: npt.NDArray[Any], asked: int) -> None:
        """Embed, one stage after the other."""
        pipeline = self._pipeline
        began = perf_counter_ns()
        on_device = pipeline.h2d(images)
        moved = perf_counter_ns()
        result = pipeline.forward(on_device)
        forwarded = perf_counter_ns()
        # A copy: a mock model's vectors are a view of the ring.
        vectors = np.array(pipeline.d2h(result), dtype=np.float32)
        back = perf_counter_ns()
        self._sink.put(ids, vectors, asked)
        spans = [("h2d", began, moved - began), ("forward", moved, forwarded - moved)]
        self._spans.append([*spans, ("d2h", forwarded, back - forwarded)])

    def drain(self) -> None:
        """Nothing is on its way."""

    def spans(self) -> list[list[Span]]:
        """One list a batch."""
        return self._spans


@dataclass
class _Flight:
    """A batch on its way through the GPU: its vectors' host copy, and four events around the stages."""

    ids: Sequence[str]
    asked: int
    vectors: Any
    events: Sequence[Any]


class CudaConsumer:
    """Copies in, forward passes and copies out each have a stream, so that they overlap.

    A batch's buffer is free when its copy in is done, which this waits for; the forward pass of the
    batch before runs meanwhile. Device times come from events, placed on the host's clock through one
    event that was recorded when nothing else ran.
    """

    lane = "gpu"

    def __init__(self, pipeline: Pipeline, sink: WriterThread) -> None:
        import torch

        self._torch: Any = torch
        self._pipeline = pipeline
        self._sink = sink
        cuda = self._torch.cuda
        self._in, self._compute, self._out = cuda.Stream(), cuda.Stream(), cuda.Stream()
        cuda.synchronize()
        self._base = self._event()
        self._base.record()
        self._base.synchronize()
        self._base_ns = perf_counter_ns()
        self._flights: deque[_Flight] = deque()
        self._spans: list[list[Span]] = []

    def submit(self, ids: Sequence[str], images: npt.NDArray[Any], asked: int) -> None:
        """Queue a batch on the three streams; return when its buffer is free."""
        torch, events = self._torch, [self._event() for _ in range(6)]
        with torch.cuda.stream(self._in):
            events[0].record()
            on_device = self._pipeline.h2d(images)
            events[1].record()
        with torch.cuda.stream(self._compute):
            self._compute.wait_event(events[1])
            events[2].record()
            result = self._pipeline.forward(on_device).float()
            events[3].record()
        # The allocator must not hand a tensor's memory out again while another stream is at it.
        on_device.record_stream(self._compute)
        with torch.cuda.stream(self._out):
            self._out.wait_event(events[3])
            events[4].record()
            vectors = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
            vectors.copy_(result, non_blocking=True)
            events[5].record()
        result.record_stream(self._out)
        self._flights.append(_Flight(ids, asked, vectors, events))
        while len(self._flights) > IN_FLIGHT:
            self._land()
        events[1].synchronize()

    def drain(self) -> None:
        """Wait for every batch and hand it to the sink."""
        while self._flights:
            self._land()

    def spans(self) -> list[list[Span]]:
        """One list a batch."""
        return self._spans

    def _land(self) -> None:
        flight = self._flights.popleft()
        flight.events[-1].synchronize()
        self._sink.put(flight.ids, flight.vectors.numpy(), flight.asked)
        marks = [
            self._base_ns + round(self._base.elapsed_time(event) * 1e6) for event in flight.events
        ]
        names = ("h2d", "forward", "d2h")
        self._spans.append(
            [(name, marks[2 * i], marks[2 * i + 1] - marks[2 * i]) for i, name in enumerate(names)]
        )

    def _event(self) -> Any:
        return self._torch.cuda.Event(enable_timing=True)
