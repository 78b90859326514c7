"""The stage profiler: where the time of a loop goes, on host and device.

    profiler = StageProfiler()
    with profiler.stage("decode"):
        pixels = decode(data)
    profiler.totals["decode"]   # 0.0123 seconds
    profiler.counts["decode"]   # 1 image

All times are of `perf_counter_ns`: on Linux CLOCK_MONOTONIC, which is one for all processes of a
machine, so that one process may subtract what another has read.

A `with` on a plain object costs a fraction of `@contextlib.contextmanager`, which builds a
generator a call; experiment `profiler` measures both and writes `profiler-overhead.csv`.
"""

import os
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import TypeAlias

from wallclock.clock import DEVICE_STAGES

#: Nanoseconds that never go back.
Clock: TypeAlias = Callable[[], int]
Call: TypeAlias = Callable[[], object]
#: Begins a named range, and ends the innermost one.
Nvtx: TypeAlias = tuple[Callable[[str], object], Call]


class Stage:
    """One named stage of one profiler: a reusable, re-entrant context manager.

    A duration is the stage's own time: nested stages are subtracted, so that no nanosecond counts
    twice and the stages' sum never exceeds the wall time.

    Attributes:
        samples: one duration per call, in nanoseconds.
        failed: calls that an exception left.
        more: images beyond one a call.
    """

    __slots__ = ("_after", "_before", "_clock", "_started", "failed", "more", "samples")

    def __init__(
        self, clock: Clock, started: list[int], before: Sequence[Call], after: Sequence[Call]
    ) -> None:
        self._clock = clock
        #: Called before its clock starts, and before it stops.
        self._before, self._after = before, after
        #: Start times of the profiler's open stages, outermost first; all its stages share it.
        self._started = started
        self.samples: array[int] = array("q")
        self.failed: int = 0
        self.more: int = 0

    def __enter__(self) -> None:
        for call in self._before:
            call()
        self._started.append(self._clock())

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            for call in self._after:
                call()
        except BaseException as lost:
            kind = lost
            raise
        finally:
            started = self._started
            elapsed = self._clock() - started.pop()
            self.samples.append(elapsed)
            # Moving every enclosing stage's start forward takes this time out of their own.
            for level in range(len(started)):
                started[level] += elapsed
            self.failed += kind is not None


class StageProfiler:
    """Adds up where the time of one thread goes, stage by stage.

    Args:
        synchronize: waits for the device, e.g. `torch.cuda.synchronize`; None on a CPU. CUDA
            kernels and copies are queued: without the wait, a forward pass would be charged to
            whichever later stage first needs its result.
        synced: the stages that call it. Only those pay for it.
        clock: a test may pass one that it turns itself.
        nvtx: NVTX's push and pop, around every stage; by default torch's where Nsight Systems
            runs this process, else none.

    Not thread-safe on purpose (a lock would cost more than the clock): one profiler per thread.
    Another thread may read it meanwhile.
    """

    def __init__(
        self,
        synchronize: Call | None = None,
        synced: frozenset[str] = frozenset(DEVICE_STAGES),
        clock: Clock = perf_counter_ns,
        nvtx: Nvtx | None = None,
    ) -> None:
        self._synchronize = synchronize
        self._synced = synced
        self._clock = clock
        self._nvtx = nvtx or active_nvtx()
        self._started: list[int] = []
        self._stages: dict[str, Stage] = {}

    def stage(self, name: str, count: int = 1) -> Stage:
        """A context manager that times its block::

            with profiler.stage("forward", count=32):

        Args:
            name: of the stage; it is created at its first use.
            count: images that the block takes.
        """
        try:
            stage = self._stages[name]
        except KeyError:
            stage = self._stages[name] = self._create(name)
        stage.more += count - 1
        return stage

    def _create(self, name: str) -> Stage:
        before, after = list[Call](), list[Call]()
        if self._synchronize is not None and name in self._synced:
            before, after = [self._synchronize], [self._synchronize]
        if self._nvtx is not None:
            push, pop = self._nvtx
            before, after = [*before, partial(push, name)], [*after, pop]
        return Stage(self._clock, self._started, before, after)

    def samples(self) -> dict[str, Sequence[int]]:
        """Every duration of every stage so far, in nanoseconds, in call order."""
        return {name: stage.samples for name, stage in self._copied()}

    @property
    def totals(self) -> dict[str, float]:
        """Seconds per stage, each stage's own time."""
        return {name: sum(stage.samples) / 1e9 for name, stage in self._copied()}

    @property
    def counts(self) -> dict[str, int]:
        """Images per stage: the sum of its calls' `count`."""
        return {name: len(stage.samples) + stage.more for name, stage in self._copied()}

    @property
    def failures(self) -> dict[str, int]:
        """Calls of each stage that an exception left."""
        return {name: stage.failed for name, stage in self._copied()}

    def _copied(self) -> list[tuple[str, Stage]]:
        # A copy, in one step: the profiler's thread may add a stage while another one reads.
        return list(self._stages.items())


def active_nvtx() -> Nvtx | None:
    """NVTX's push and pop if Nsight Systems runs this process and torch was built for CUDA."""
    if "NSYS_PROFILING_SESSION_ID" not in os.environ:
        return None
    import torch

    if torch.version.cuda is None:
        return None
    return torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
