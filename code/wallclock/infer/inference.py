"""A batch in host memory → device → vectors → the writer, on the host or on a GPU."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np

from wallclock.clock import DEVICE_STAGES
from wallclock.infer.event_clock import Anchor, EventClock
from wallclock.infer.network import Embedder
from wallclock.infer.writer import Writer
from wallclock.loader.batch import Batch, Span
from wallclock.recipe import Recipe

#: Batches queued on a GPU at a time where the engine overlaps: one running, one behind it.
IN_FLIGHT = 2


class Inference:
    """Takes batches through h2d, forward and d2h and passes the vectors to the writer.

    `lane`: where the three run, `gpu` or `main` for the main process's own CPU. `spans`: the three
    of every batch so far, in order, on the host's clock.
    """

    lane = "main"

    def __init__(self, embedder: Embedder, writer: Writer) -> None:
        self.spans: list[list[Span]] = []
        self.writer = writer
        self._embedder = embedder

    def submit(self, batch: Batch, requested: int) -> None:
        """Take a batch; when this returns, its buffer may be reused.

        Args:
            requested: when the batch was requested from its loader, in ns.
        """
        raise NotImplementedError

    def clock_error_ns(self) -> int:
        """How far the start of a span may be off: 0 where the host runs the stages."""
        return 0

    def finish(self) -> None:
        """Wait for every batch and for the writer to complete its file."""
        self.writer.finish()

    def restart(self, writer: Writer) -> None:
        """Go on with another writer, and no spans, after `finish`.

        Streams stay, and with them the device's memory: the allocator gives a block again to the
        stream that had it. A new object would have its memory to allocate.
        """
        self.writer = writer
        self.spans = []


def open_inference(embedder: Embedder, recipe: Recipe, writer: Writer) -> Inference:
    """The inference step of a recipe's device.

    Only engine `threads` overlaps batches on a GPU; the others wait for each batch's vectors, as
    the plain loop around a DataLoader does.
    """
    if embedder.device != "cuda":  # read back: a mock model stays on the host
        return HostInference(embedder, writer)
    return CudaInference(embedder, writer, IN_FLIGHT if recipe.engine == "threads" else 0)


class HostInference(Inference):
    """The stages run in this thread, sequentially."""

    def __init__(
        self, embedder: Embedder, writer: Writer, clock: Callable[[], int] = perf_counter_ns
    ) -> None:
        super().__init__(embedder, writer)
        self._clock = clock

    def submit(self, batch: Batch, requested: int) -> None:
        """Embed, one stage at a time."""
        embedder, clock = self._embedder, self._clock
        began = clock()
        on_device = embedder.h2d(batch.images)
        moved = clock()
        result = embedder.forward(on_device)
        forwarded = clock()
        # A copy: the mock model's vectors are a view of the loader's buffer.
        vectors = np.array(embedder.d2h(result), dtype=np.float32)
        back = clock()
        self.spans.append(_spans([(began, moved), (moved, forwarded), (forwarded, back)]))
        self.writer.put(batch.ids, vectors, requested)


@dataclass
class _InFlight:
    """A batch queued on the GPU: the host copy of its vectors, and events around its stages.

    `before`: an anchor of the clock from before the first event.
    """

    ids: Sequence[str]
    requested: int
    vectors: Any
    events: Sequence[Any]
    before: Anchor


class CudaInference(Inference):
    """Copies in, forward passes and copies out each have a stream, so that they overlap.

    A batch's buffer is free when its copy in is done, which `submit` waits for; the forward pass of
    the batch before runs meanwhile. Synchronizing after each stage would forbid the overlap that is
    measured; CUDA events cost microseconds. An `EventClock` makes their times the host's.
    """

    lane = "gpu"

    def __init__(self, embedder: Embedder, writer: Writer, in_flight: int) -> None:
        import torch

        super().__init__(embedder, writer)
        self._torch: Any = torch
        self._max_in_flight = in_flight
        cuda = self._torch.cuda
        self._in = cuda.Stream()
        self._compute = cuda.Stream()
        self._out = cuda.Stream()
        cuda.synchronize()
        self._clock = EventClock(cuda, perf_counter_ns)
        self._in_flight: deque[_InFlight] = deque()

    def submit(self, batch: Batch, requested: int) -> None:
        """Queue a batch on the three streams; return when its buffer is free."""
        torch, events = self._torch, [self._event() for _ in range(6)]
        before = self._clock.anchor()
        with torch.cuda.stream(self._in):
            events[0].record()
            on_device = self._embedder.h2d(batch.images)
            events[1].record()
        with torch.cuda.stream(self._compute):
            self._compute.wait_event(events[1])
            events[2].record()
            result = self._embedder.forward(on_device).float()
            events[3].record()
        # The allocator must not reuse a tensor's memory while another stream reads it.
        on_device.record_stream(self._compute)
        with torch.cuda.stream(self._out):
            self._out.wait_event(events[3])
            events[4].record()
            vectors = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
            vectors.copy_(result, non_blocking=True)
            events[5].record()
        result.record_stream(self._out)
        self._in_flight.append(_InFlight(batch.ids, requested, vectors, events, before))
        while len(self._in_flight) > self._max_in_flight:
            self._complete_oldest()
        events[1].synchronize()

    def clock_error_ns(self) -> int:
        """See `Inference`: the largest error of an anchor."""
        return self._clock.error_ns

    def finish(self) -> None:
        """Wait for every batch and complete the writer's file."""
        while self._in_flight:
            self._complete_oldest()
        super().finish()

    def _complete_oldest(self) -> None:
        flight = self._in_flight.popleft()
        flight.events[-1].synchronize()
        self._clock.anchor()
        times = []
        for began, ended in zip(flight.events[::2], flight.events[1::2], strict=True):
            start = self._clock.host_ns(began, flight.before)
            times.append((start, start + round(began.elapsed_time(ended) * 1e6)))
        self.spans.append(_spans(times))
        self.writer.put(flight.ids, flight.vectors.numpy(), flight.requested)

    def _event(self) -> Any:
        # Polled by default, which takes a core from the loaders: a plain loop pays for that. Where
        # a batch is queued behind, a wait may sleep: waking up late costs the device nothing.
        return self._torch.cuda.Event(enable_timing=True, blocking=self._max_in_flight > 0)


def _spans(times: Any) -> list[Span]:
    pairs = zip(DEVICE_STAGES, times, strict=True)
    return [(stage, start, end - start) for stage, (start, end) in pairs]
