"""The consumer's side: spans on the host's clock, and on a GPU's events made to fit it."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from wallclock.engines import embedder
from wallclock.engines import pipeline as pipelines
from wallclock.stages import transfer

STAGES = ["h2d", "forward", "d2h", "serialize"]


class FakeEvent:
    """A CUDA event on the host's clock that refuses to be read before it was waited for."""

    latest = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0
        self.waited = False

    def record(self) -> None:
        self.at, self.waited = time.perf_counter() * 1e3, False

    def synchronize(self) -> None:
        FakeEvent.latest = time.perf_counter() * 1e3
        self.waited = True

    def elapsed_time(self, other: FakeEvent) -> float:
        assert self.waited, "the base was read before it was reached"
        assert other.at <= FakeEvent.latest, "an event was read before the device was waited for"
        return other.at - self.at


def pipeline() -> pipelines.Pipeline:
    def slow(batch: Any) -> Any:
        time.sleep(0.004)
        return batch

    return replace(pipelines.null(), forward=slow, d2h=lambda batch: batch)


def check(spans: list[embedder.Span], tolerance_ns: int = 1000) -> None:
    assert [name for name, _, _ in spans] == STAGES
    for (_, start, took), (_, following, _) in pairwise(spans):
        assert following >= start + took - tolerance_ns, "stages overlap"
    assert spans[1][2] >= 4_000_000, "the forward pass sleeps 4 ms"


def test_host_spans() -> None:
    made = embedder.make(pipeline(), "cpu")
    assert made.lane == "main"
    check(made(["a"], np.zeros((1, 3, 2, 2), np.float32)))


def test_event_spans_wait_for_the_device_and_fit_the_host_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    made = embedder.make(pipeline(), "cuda")
    assert made.lane == "gpu"
    before = time.perf_counter_ns()
    spans = made(["a"], np.zeros((1, 3, 2, 2), np.float32))
    # The two clocks were tied together at one moment, in which a busy machine may have looked away:
    # a wrong unit would be off by far more than a second.
    check(spans, tolerance_ns=10**9)
    assert before - 10**9 <= spans[0][1] <= time.perf_counter_ns() + 10**9


def test_a_cuda_pass_synchronizes_with_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert transfer.make("cuda").synchronize is torch.cuda.synchronize
    assert transfer.make("cpu").synchronize is None
