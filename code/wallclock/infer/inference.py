"""A batch in host memory → device → vectors, on the host or on a GPU."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from wallclock.infer.network import Embedder
from wallclock.loader.batch import Batch
from wallclock.stages.pixels import Vectors

#: Batches queued on a GPU at a time: one running, one behind it.
IN_FLIGHT = 2

#: Takes n ids and their (n, dim) vectors, which nobody modifies any more.
Put: TypeAlias = Callable[[Sequence[str], Vectors], None]


class Inference:
    """Takes batches through h2d, forward and d2h and passes their vectors on, in order: here."""

    def __init__(self, embedder: Embedder, put: Put) -> None:
        self._embedder, self._put = embedder, put

    def submit(self, batch: Batch) -> None:
        """Take a batch; when this returns, its buffer may be reused."""
        # A copy: the mock model's vectors are a view of the loader's buffer.
        self._put(batch.ids, np.array(self._embedder.embed(batch.images), dtype=np.float32))

    def finish(self) -> None:
        """Wait for every batch."""


def open_inference(embedder: Embedder, put: Put) -> Inference:
    """The inference step of an embedder's device."""
    if embedder.device != "cuda":  # read back: a mock model stays on the host
        return Inference(embedder, put)
    return CudaInference(embedder, put, IN_FLIGHT)


class CudaInference(Inference):
    """Copies in, passes and copies out in a stream each; a buffer is free once it is copied in."""

    #: Whether its events have times.
    timed = False

    def __init__(self, embedder: Embedder, put: Put, in_flight: int) -> None:
        import torch

        super().__init__(embedder, put)
        self._torch: Any = torch
        self._max_in_flight = in_flight
        cuda = self._torch.cuda
        self._in = cuda.Stream()
        self._compute = cuda.Stream()
        self._out = cuda.Stream()
        cuda.synchronize()
        #: Ids, the host copy of their vectors, and the event that says that it is complete.
        self._in_flight: deque[tuple[Sequence[str], Any, Any]] = deque()

    def submit(self, batch: Batch) -> None:
        """Queue a batch on the three streams; return when its buffer is free."""
        torch = self._torch
        with torch.cuda.stream(self._in):
            self.begin()
            on_device = self._embedder.h2d(batch.images)
            copied = self.mark()
        with torch.cuda.stream(self._compute):
            self._compute.wait_event(copied)
            self.begin()
            result = self._embedder.forward(on_device).float()
            embedded = self.mark()
        # The allocator must not reuse a tensor's memory while another stream reads it.
        on_device.record_stream(self._compute)
        with torch.cuda.stream(self._out):
            self._out.wait_event(embedded)
            self.begin()
            vectors = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
            vectors.copy_(result, non_blocking=True)
            arrived = self.mark()
        result.record_stream(self._out)
        self._in_flight.append((batch.ids, vectors, arrived))
        while len(self._in_flight) > self._max_in_flight:
            self._complete_oldest()
        copied.synchronize()

    def finish(self) -> None:
        """Wait for every batch."""
        while self._in_flight:
            self._complete_oldest()

    def begin(self) -> None:
        """A stage begins on the current stream."""

    def mark(self) -> Any:
        """A stage has ended on the current stream: an event that the device reaches then."""
        # Polled by default, which takes a core from the loaders: a plain loop pays for that. Where
        # a batch is queued behind, a wait may sleep: waking up late costs the device nothing.
        blocking = self._max_in_flight > 0
        event = self._torch.cuda.Event(enable_timing=self.timed, blocking=blocking)
        event.record()
        return event

    def _complete_oldest(self) -> None:
        ids, vectors, arrived = self._in_flight.popleft()
        arrived.synchronize()
        self._put(ids, vectors.numpy())
