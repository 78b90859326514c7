"""Host and device time: the stages' names, the stage profiler, and disabling the GC.

    profiler = StageProfiler()
    with profiler.stage("decode"):
        pixels = decode(data)
    profiler.seconds()          # {"decode": 0.0123}

All times are of `perf_counter_ns`: on Linux CLOCK_MONOTONIC, which is one for all processes of a
machine, so that one process may subtract what another has read.

A `with` on a plain object costs a fraction of `@contextlib.contextmanager`, which builds a
generator a call; experiment `profiler` measures both and writes `profiler-overhead.csv`.
"""

import gc
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TypeAlias

#: The stages before the device, and those that move a batch through it.
LOADING_STAGES = ("read", "decode", "resize", "normalize", "assemble")
DEVICE_STAGES = ("h2d", "forward", "d2h")
#: The nine stages, in the order an image passes them.
STAGES = (*LOADING_STAGES, *DEVICE_STAGES, "serialize")

#: Nanoseconds that never go back.
Clock: TypeAlias = Callable[[], int]


class Stage:
    """One named stage of one profiler: a reusable, re-entrant context manager.

    `samples` holds one duration per call, in nanoseconds. A duration is the stage's own time:
    nested stages are subtracted, so that no nanosecond counts twice and the stages' sum never
    exceeds the wall time.
    """

    __slots__ = ("_add", "_clock", "_open", "_pop", "_push", "name", "samples")

    def __init__(self, name: str, open_stages: list[int], clock: Clock) -> None:
        self.name = name
        self.samples = array("q")
        self._add = self.samples.append
        self._clock = clock
        self._open = open_stages
        self._push = open_stages.append
        self._pop = open_stages.pop

    def __enter__(self) -> None:
        self._push(self._clock())

    def __exit__(self, *_: object) -> None:
        elapsed = self._clock() - self._pop()
        self._add(elapsed)
        if self._open:
            # Moving every enclosing stage's start forward takes this time out of their own.
            for level in range(len(self._open)):
                self._open[level] += elapsed


class SyncedStage(Stage):
    """A stage that waits for the device before it starts its clock and before it stops it.

    CUDA kernels and copies are queued: without the wait, a forward pass would be charged to
    whichever later stage first needs its result.
    """

    __slots__ = ("_synchronize",)

    def __init__(
        self, name: str, open_stages: list[int], clock: Clock, synchronize: Callable[[], object]
    ) -> None:
        super().__init__(name, open_stages, clock)
        self._synchronize = synchronize

    def __enter__(self) -> None:
        self._synchronize()
        super().__enter__()

    def __exit__(self, *_: object) -> None:
        try:
            self._synchronize()
        finally:
            super().__exit__()


class _Stages(dict[str, Stage]):
    """Stages by name, created at first use."""

    def __init__(self, create: Callable[[str], Stage]) -> None:
        super().__init__()
        self._create = create

    def __missing__(self, name: str) -> Stage:
        return self.setdefault(name, self._create(name))


class StageProfiler:
    """Adds up where the time of one thread goes, stage by stage.

    Args:
        synchronize: waits for the device, e.g. `torch.cuda.synchronize`; None on a CPU.
        synced: the stages that call it. Only those pay for it.
        clock: a test may pass one that it turns itself.

    Not thread-safe on purpose (a lock would cost more than the clock): one profiler per thread.
    """

    def __init__(
        self,
        synchronize: Callable[[], object] | None = None,
        synced: frozenset[str] = frozenset(DEVICE_STAGES),
        clock: Clock = perf_counter_ns,
    ) -> None:
        open_stages: list[int] = []

        def create(name: str) -> Stage:
            if synchronize is not None and name in synced:
                return SyncedStage(name, open_stages, clock, synchronize)
            return Stage(name, open_stages, clock)

        self._stages = _Stages(create)
        #: `with profiler.stage("decode"):`. The dictionary's own look-up instead of a method:
        #: one Python call less for each stage.
        self.stage: Callable[[str], Stage] = self._stages.__getitem__

    def samples(self) -> dict[str, "array[int]"]:
        """Every duration of every stage so far, in nanoseconds, in call order."""
        return {name: stage.samples for name, stage in self._stages.items()}

    def counts(self) -> dict[str, int]:
        """Calls per stage."""
        return {name: len(stage.samples) for name, stage in self._stages.items()}

    def seconds(self) -> dict[str, float]:
        """Total seconds per stage, each stage's own time."""
        return {name: sum(stage.samples) / 1e9 for name, stage in self._stages.items()}


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Collect garbage once, then disable the collector while the block runs."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
