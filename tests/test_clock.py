"""The stage profiler: totals, counts and samples, whatever opens inside what, and whatever raises."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallclock import clock
from wallclock.clock import STAGES, StageProfiler, gc_disabled


@dataclass
class FakeClock:
    """Nanoseconds that pass only when told."""

    now: int = 1_000

    def __call__(self) -> int:
        return self.now


@dataclass(frozen=True)
class Node:
    """A stage that spends `own` ns by itself, around the stages inside it, and then may raise."""

    name: str
    own: int
    inside: list[Node] = field(default_factory=list)
    raises: bool = False


NODES = st.recursive(
    st.builds(Node, st.sampled_from(STAGES), st.integers(0, 10**12), st.just([]), st.booleans()),
    lambda inner: st.builds(
        Node,
        st.sampled_from(STAGES),
        st.integers(0, 10**12),
        st.lists(inner, max_size=3),
        st.booleans(),
    ),
    max_leaves=12,
)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    made = FakeClock()
    monkeypatch.setattr(clock, "perf_counter_ns", made)
    return made


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
    return [found for node in nodes for found in (node, *flatten(node.inside))]


def test_the_nine_stages_are_in_the_order_an_image_passes_them() -> None:
    assert STAGES == (
        "read",
        "decode",
        "resize",
        "normalize",
        "assemble",
        "h2d",
        "forward",
        "d2h",
        "serialize",
    )


def test_totals_counts_and_samples_in_call_order(fake: FakeClock) -> None:
    profiler = StageProfiler()
    for name, ns in (("decode", 5), ("read", 2), ("decode", 7)):
        with profiler.stage(name):
            fake.now += ns
        fake.now += 1_000_000  # time outside a stage is nobody's
    assert {name: list(found) for name, found in profiler.samples().items()} == {
        "decode": [5, 7],
        "read": [2],
    }
    assert profiler.counts() == {"decode": 2, "read": 1}
    assert profiler.seconds() == {"decode": 12e-9, "read": 2e-9}


def test_a_stage_that_was_never_entered_is_not_there() -> None:
    profiler = StageProfiler()
    assert profiler.samples() == profiler.counts() == profiler.seconds() == {}


@given(nodes=st.lists(NODES, max_size=4), between=st.integers(0, 10**9))
def test_each_stage_is_charged_its_own_time_and_nothing_else(
    nodes: list[Node], between: int
) -> None:
    """Nested, recursive and raising stages alike: exact sums, and together never more than the wall."""
    with pytest.MonkeyPatch.context() as patch:
        fake = FakeClock()
        patch.setattr(clock, "perf_counter_ns", fake)
        profiler, began = StageProfiler(), fake.now
        play(nodes, profiler, fake)
        fake.now += between
        wall = fake.now - began
    everything = flatten(nodes)
    expected: dict[str, int] = {}
    for node in everything:
        expected[node.name] = expected.get(node.name, 0) + node.own
    assert {name: sum(found) for name, found in profiler.samples().items()} == expected
    assert sum(profiler.counts().values()) == len(everything)
    assert sum(sum(found) for found in profiler.samples().values()) == wall - between


def test_an_exception_passes_through_and_is_timed(fake: FakeClock) -> None:
    profiler = StageProfiler()
    with pytest.raises(KeyError, match="lost"), profiler.stage("outer"), profiler.stage("inner"):  # noqa: PT012
        fake.now += 3
        raise KeyError("lost")
    with profiler.stage("outer"):
        fake.now += 4
    assert {name: list(found) for name, found in profiler.samples().items()} == {
        "inner": [3],
        "outer": [0, 4],
    }


def test_a_stage_inside_itself(fake: FakeClock) -> None:
    profiler = StageProfiler()
    with profiler.stage("read"):
        fake.now += 10
        with profiler.stage("read"):
            fake.now += 1
    assert list(profiler.samples()["read"]) == [1, 10]


def test_with_the_real_clock_stages_never_exceed_the_wall() -> None:
    profiler, began = StageProfiler(), perf_counter_ns()
    for _ in range(200):
        with profiler.stage("decode"), profiler.stage("resize"):
            sum(range(200))
    wall = perf_counter_ns() - began
    total = sum(sum(found) for found in profiler.samples().values())
    assert 0 < total <= wall
    assert profiler.counts() == {"decode": 200, "resize": 200}


def trace(fake: FakeClock, events: list[str], waiting: int) -> Callable[[], None]:
    def synchronize() -> None:
        events.append(f"sync at {fake.now}")
        fake.now += waiting

    return synchronize


def test_a_synced_stage_waits_before_its_clock_starts_and_before_it_stops(fake: FakeClock) -> None:
    events: list[str] = []
    profiler = StageProfiler(trace(fake, events, waiting=100), synced=frozenset({"forward"}))
    with profiler.stage("decode"):
        fake.now += 1
    assert events == []
    with profiler.stage("forward"):
        events.append("body")
        fake.now += 5
    assert events == ["sync at 1001", "body", "sync at 1106"]
    # The first wait is for what was queued before: not this stage's time. The second one is.
    assert list(profiler.samples()["forward"]) == [105]


def test_only_the_device_stages_are_synced_by_default(fake: FakeClock) -> None:
    events: list[str] = []
    profiler = StageProfiler(trace(fake, events, waiting=0))
    for name in STAGES:
        before = len(events)
        with profiler.stage(name):
            pass
        assert len(events) - before == (2 if name in ("h2d", "forward", "d2h") else 0), name


def test_a_device_that_fails_while_waiting_leaves_the_profiler_whole(fake: FakeClock) -> None:
    calls: list[int] = []

    def synchronize() -> None:
        calls.append(fake.now)
        if len(calls) == 2:
            raise RuntimeError("device lost")

    profiler = StageProfiler(synchronize)
    with profiler.stage("read"):
        with pytest.raises(RuntimeError, match="device lost"), profiler.stage("forward"):
            fake.now += 5
        fake.now += 2
    assert {name: list(found) for name, found in profiler.samples().items()} == {
        "forward": [5],
        "read": [2],
    }


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_off_inside_and_as_before_after(enabled: bool) -> None:
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(ZeroDivisionError), gc_disabled():  # noqa: PT012
            assert not gc.isenabled()
            raise ZeroDivisionError
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()
