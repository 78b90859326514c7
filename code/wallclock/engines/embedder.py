"""The consumer's side of an overlapped engine: batch → device → vectors → sink, with its spans."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any, Protocol

from wallclock.engines.pipeline import Pipeline

#: One stretch of work: stage, start in ns, duration in ns.
Span = tuple[str, int, int]


class Embedder(Protocol):
    """Takes one batch through h2d, forward, d2h and serialize."""

    #: Where the first three happen: `gpu`, or `main` for the main process's own CPU.
    lane: str

    def __call__(self, ids: Sequence[str], images: Any) -> list[Span]:
        """Embed and store; return the four spans on the host's clock."""


def make(pipeline: Pipeline, device: str) -> Embedder:
    """The embedder for a device: host clock on a CPU, CUDA events on a GPU."""
    return CudaEmbedder(pipeline) if device == "cuda" else HostEmbedder(pipeline)


class HostEmbedder:
    """Stages run in this thread, one after the other."""

    lane = "main"

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def __call__(self, ids: Sequence[str], images: Any) -> list[Span]:
        """Embed and store, timing each stage by the host's clock."""
        pipeline = self._pipeline
        began = perf_counter_ns()
        on_device = pipeline.h2d(images)
        moved = perf_counter_ns()
        result = pipeline.forward(on_device)
        forwarded = perf_counter_ns()
        vectors = pipeline.d2h(result)
        back = perf_counter_ns()
        pipeline.serialize(ids, vectors)
        done = perf_counter_ns()
        return [
            ("h2d", began, moved - began),
            ("forward", moved, forwarded - moved),
            ("d2h", forwarded, back - forwarded),
            ("serialize", back, done - back),
        ]


class CudaEmbedder:
    """h2d and forward are queued; the copy back waits. Device times come from CUDA events.

    Synchronizing after each stage would forbid the overlap that is being measured; events cost
    microseconds. Event times become host times through one event recorded when both clocks were
    known to stand still: right after a synchronize.
    """

    lane = "gpu"

    def __init__(self, pipeline: Pipeline) -> None:
        import torch

        self._pipeline = pipeline
        event: Any = torch.cuda.Event
        self._events = [event(enable_timing=True) for _ in range(4)]
        self._base = event(enable_timing=True)
        torch.cuda.synchronize()
        self._base.record()
        self._base.synchronize()
        self._base_ns = perf_counter_ns()

    def __call__(self, ids: Sequence[str], images: Any) -> list[Span]:
        """Embed and store; the three device stages by events, `serialize` by the host's clock."""
        pipeline, events = self._pipeline, self._events
        events[0].record()
        on_device = pipeline.h2d(images)
        events[1].record()
        result = pipeline.forward(on_device)
        events[2].record()
        vectors = pipeline.d2h(result)
        events[3].record()
        events[3].synchronize()
        began = perf_counter_ns()
        pipeline.serialize(ids, vectors)
        done = perf_counter_ns()
        marks = [self._base_ns + round(self._base.elapsed_time(event) * 1e6) for event in events]
        names = ("h2d", "forward", "d2h")
        spans = [(name, marks[i], marks[i + 1] - marks[i]) for i, name in enumerate(names)]
        return [*spans, ("serialize", began, done - began)]
