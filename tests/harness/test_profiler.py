"""The stage profiler: totals, counts and samples of nested and raising stages, on a fake clock."""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.profiler import StageProfiler
from wallclock.clock import STAGES


@dataclass
class FakeClock:
    """Nanoseconds that pass only when a test adds them."""

    now: int = 1_000

    def __call__(self) -> int:
        return self.now


@dataclass(frozen=True)
class Node:
    """A stage that spends `own` ns by itself, around the stages inside it, and then may raise."""

    name: str
    own: int
    inside: list["Node"] = field(default_factory=list)
    raises: bool = False


def nodes_around(inside: st.SearchStrategy[list[Node]]) -> st.SearchStrategy[Node]:
    return st.builds(Node, st.sampled_from(STAGES), st.integers(0, 10**12), inside, st.booleans())


NODES = st.recursive(
    nodes_around(st.just([])),
    lambda inner: nodes_around(st.lists(inner, max_size=3)),
    max_leaves=12,
)


@pytest.fixture
def fake() -> FakeClock:
    return FakeClock()


def play(nodes: list[Node], profiler: StageProfiler, fake: FakeClock) -> None:
    for node in nodes:
        try:
            with profiler.stage(node.name):
                fake.now += node.own // 2
                play(node.inside, profiler, fake)
                fake.now += node.own - node.own // 2
                if node.raises:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            assert node.raises


def flatten(nodes: list[Node]) -> list[Node]:
    return [inner for node in nodes for inner in (node, *flatten(node.inside))]


def durations(profiler: StageProfiler) -> dict[str, list[int]]:
    return {name: list(samples) for name, samples in profiler.samples().items()}


@given(nodes=st.lists(NODES, max_size=4), between=st.integers(0, 10**9))
def test_stages_are_exclusive(nodes: list[Node], between: int) -> None:
    """Nested, recursive and raising stages alike: exact sums, never more than the wall time."""
    fake = FakeClock()
    profiler, began = StageProfiler(clock=fake), fake.now
    play(nodes, profiler, fake)
    fake.now += between
    everything = flatten(nodes)
    expected: dict[str, int] = {}
    for node in everything:
        expected[node.name] = expected.get(node.name, 0) + node.own
    sums = {name: sum(samples) for name, samples in profiler.samples().items()}
    assert sums == expected
    assert sum(profiler.counts.values()) == len(everything)
    assert sum(sums.values()) == fake.now - began - between


def trace(fake: FakeClock, events: list[str], waiting: int) -> Callable[[], None]:
    def synchronize() -> None:
        events.append(f"sync at {fake.now}")
        fake.now += waiting

    return synchronize


def test_synced_stage_waits_twice(fake: FakeClock) -> None:
    events: list[str] = []
    profiler = StageProfiler(
        trace(fake, events, waiting=100), synced=frozenset({"forward"}), clock=fake
    )
    with profiler.stage("decode"):
        fake.now += 1
    assert events == []
    with profiler.stage("forward"):
        events.append("body")
        fake.now += 5
    assert events == ["sync at 1001", "body", "sync at 1106"]
    # The first wait is for what was queued before: not this stage's time. The second one is.
    assert list(profiler.samples()["forward"]) == [105]


def test_failing_device_keeps_the_profiler_valid(fake: FakeClock) -> None:
    calls: list[int] = []

    def synchronize() -> None:
        calls.append(fake.now)
        if len(calls) == 2:
            raise RuntimeError("device lost")

    profiler = StageProfiler(synchronize, clock=fake)
    with profiler.stage("read"):
        with pytest.raises(RuntimeError, match="device lost"), profiler.stage("forward"):
            fake.now += 5
        fake.now += 2
    assert durations(profiler) == {"forward": [5], "read": [2]}


def test_count_and_failures(fake: FakeClock) -> None:
    """`stage(name, count)` as in the paper; nested calls count too; a failure in each it leaves."""
    profiler = StageProfiler(clock=fake)
    for count in (32, 1, 7):
        with profiler.stage("forward", count), profiler.stage("h2d", count=count):
            fake.now += count
    with suppress(KeyError), profiler.stage("forward", 4):
        raise KeyError
    assert profiler.counts == {"forward": 44, "h2d": 40}
    assert durations(profiler) == {"forward": [0, 0, 0, 0], "h2d": [32, 1, 7]}
    assert profiler.failures == {"forward": 1, "h2d": 0}


def test_ranges_enclose_what_is_timed(fake: FakeClock) -> None:
    events: list[str] = []

    def push(name: str) -> None:
        events.append(f"push {name} at {fake.now}")

    nvtx = push, lambda: events.append(f"pop at {fake.now}")
    synchronize = trace(fake, events, waiting=100)
    profiler = StageProfiler(synchronize, frozenset({"forward"}), fake, nvtx)
    with pytest.raises(KeyError), profiler.stage("outer"), profiler.stage("forward", 8):  # noqa: PT012
        fake.now += 5
        raise KeyError
    outer, inside = ["push outer at 1000", "pop at 1205"], ["push forward at 1100", "pop at 1205"]
    syncs = ["sync at 1000", "sync at 1105"]
    assert events == [outer[0], syncs[0], inside[0], syncs[1], inside[1], outer[1]]
    assert durations(profiler) == {"forward": [105], "outer": [100]}
    assert profiler.failures == {"outer": 1, "forward": 1}


@pytest.mark.parametrize(("session", "built_for"), [("1", "13.0"), ("1", None), (None, "13.0")])
def test_nsight_asks_for_ranges(
    session: str | None, built_for: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed: list[str] = []
    nvtx = SimpleNamespace(range_push=pushed.append, range_pop=lambda: pushed.append("pop"))
    cuda, version = SimpleNamespace(nvtx=nvtx), SimpleNamespace(cuda=built_for)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, version=version))
    monkeypatch.delenv("NSYS_PROFILING_SESSION_ID", raising=False)
    if session:
        monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", session)
    with StageProfiler().stage("decode"):
        pass
    assert pushed == (["decode", "pop"] if session and built_for else [])
