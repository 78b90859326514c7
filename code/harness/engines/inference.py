"""The product's inference step with the times of its stages, and with a writer behind it."""

from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any, TypeAlias

import numpy as np

from harness.engines.event_clock import Anchor, EventClock
from harness.engines.writer import Writer
from harness.spec import Recipe
from wallclock.clock import DEVICE_STAGES
from wallclock.infer.inference import IN_FLIGHT, CudaInference, Put
from wallclock.infer.network import Embedder
from wallclock.loader.batch import Batch
from wallclock.stages.pixels import Vectors

#: Stage, start and duration; ns on the host's clock.
Span: TypeAlias = tuple[str, int, int]


class TimedInference:
    """Takes batches through h2d, forward and d2h and passes the vectors to the writer.

    `lane`: where the three run, `gpu` or `main` for the main process's own CPU. `spans`: the three
    of every batch so far, in order, on the host's clock.
    """

    lane = "main"

    def __init__(self, writer: Writer) -> None:
        self.spans: list[list[Span]] = []
        self.writer = writer

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


def open_inference(embedder: Embedder, recipe: Recipe, writer: Writer) -> TimedInference:
    """As the product's `open_inference`; only engine `threads` overlaps batches on a GPU."""
    if embedder.device != "cuda":
        return OnHost(embedder, writer)
    return OnGpu(embedder, writer, IN_FLIGHT if recipe.engine == "threads" else 0)


class OnHost(TimedInference):
    """The stages run in this thread, sequentially."""

    def __init__(
        self, embedder: Embedder, writer: Writer, clock: Callable[[], int] = perf_counter_ns
    ) -> None:
        super().__init__(writer)
        self._embedder, self._clock = embedder, clock

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


class _Marked(CudaInference):
    """With an event where each stage begins, too. `events`: where those of this batch go."""

    timed = True

    def __init__(self, embedder: Embedder, put: Put, in_flight: int) -> None:
        super().__init__(embedder, put, in_flight)
        self.events: list[Any] = []

    def begin(self) -> None:
        self.mark()

    def mark(self) -> Any:
        event = super().mark()
        self.events.append(event)
        return event


class OnGpu(TimedInference):
    """The product's three streams.

    Synchronizing after each stage would forbid the overlap that is measured; CUDA events cost
    microseconds. An `EventClock` makes their times the host's.
    """

    lane = "gpu"

    def __init__(self, embedder: Embedder, writer: Writer, in_flight: int) -> None:
        import torch

        super().__init__(writer)
        self._streams = _Marked(embedder, self._arrived, in_flight)
        self._clock = EventClock(torch.cuda, perf_counter_ns)
        #: Of each batch on the GPU: when it was requested, an anchor of the clock from before its
        #: first event, and its events.
        self._queued: deque[tuple[int, Anchor, list[Any]]] = deque()

    def submit(self, batch: Batch, requested: int) -> None:
        """Queue a batch on the three streams; return when its buffer is free."""
        self._streams.events = []
        self._queued.append((requested, self._clock.anchor(), self._streams.events))
        self._streams.submit(batch)

    def clock_error_ns(self) -> int:
        """See `TimedInference`: the largest error of an anchor."""
        return self._clock.error_ns

    def finish(self) -> None:
        """Wait for every batch and complete the writer's file."""
        self._streams.finish()
        super().finish()

    def _arrived(self, ids: Sequence[str], vectors: Vectors) -> None:
        requested, before, events = self._queued.popleft()
        self._clock.anchor()
        times = []
        for began, ended in zip(events[::2], events[1::2], strict=True):
            start = self._clock.host_ns(began, before)
            times.append((start, start + round(began.elapsed_time(ended) * 1e6)))
        self.spans.append(_spans(times))
        self.writer.put(ids, vectors, requested)


def _spans(times: Sequence[tuple[int, int]]) -> list[Span]:
    pairs = zip(DEVICE_STAGES, times, strict=True)
    return [(stage, start, end - start) for stage, (start, end) in pairs]
