"""What the counters count, on a clock that the test turns, and how long a device was busy."""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.profiler import StageProfiler
from tests.devices import Device
from tests.harness.test_profiler import NODES, FakeClock, Node
from wallclock.clock import STAGES
from wallclock.trace.collect import collect
from wallclock.trace.inside import layout
from wallclock.trace.inside.counters import Counters
from wallclock.trace.inside.torch_calls import DeviceClock, patch_tensor
from wallclock.trace.inside.tracer import Done, Tracer
from wallclock.trace.record import Function, Spent, Thread, Trace, by_stage
from wallclock.trace.run import Ended


class Traced:
    """A tracer of this process on a fake clock, and the trace that its file gives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.started_ns = self.clock.now
        self.tracer = Tracer(str(folder), clock=self.clock)

    def call(self, name: str, ns: int, stage: str = "decode") -> None:
        """Call a function that takes so long."""
        self.tracer.timed(lambda: self.spend(ns), self.tracer.slot(stage, name))()

    def spend(self, ns: int) -> None:
        self.clock.now += ns

    def trace(self, status: int = 0) -> Trace:
        ended = Ended(("script.py",), os.getpid(), status, self.started_ns, self.clock.now)
        return collect(self.folder, ended)

    def main(self) -> Thread:
        (thread,) = self.trace().threads(of_workers=False)
        return thread


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Traced]:
    made = Moves.traced = Traced(tmp_path)
    yield made
    # Threads of later tests end elsewhere.
    made.tracer.local.__dict__.clear()


def play(nodes: list[Node], profiler: StageProfiler, traced: Traced) -> None:
    """The same calls, counted by hand and by wrappers."""
    for node in nodes:

        def body(node: Node = node) -> None:
            with profiler.stage(node.name):
                traced.spend(node.own // 2)
                play(node.inside, profiler, traced)
                traced.spend(node.own - node.own // 2)
                if node.raises:
                    raise KeyError

        with suppress(KeyError):
            traced.tracer.timed(body, traced.tracer.slot(node.name, "f"))()


@settings(max_examples=30)
@given(st.lists(NODES, max_size=3))
def test_nested_calls_are_counted_as_the_profiler_counts_them(nodes: list[Node]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_nesting(Traced(Path(folder)), nodes)


def check_nesting(traced: Traced, nodes: list[Node]) -> None:
    profiler = StageProfiler(clock=traced.clock)
    traced.spend(5)
    play(nodes, profiler, traced)
    traced.spend(5)
    main = traced.main()
    spent = by_stage([main])
    samples = profiler.samples()
    assert {stage: total.calls for stage, total in spent.items()} == {
        stage: len(samples[stage]) for stage in STAGES if stage in samples
    }
    for stage, total in spent.items():
        assert total.seconds == sum(samples[stage]) / 1e9
    assert sum(total.seconds for total in spent.values()) <= (main.ended_s - main.started_s) * (
        1 + 1e-12
    )


def in_thread(function: Any) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_a_region_is_used_again_and_no_call_is_lost(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More threads one after the other than there are regions."""
    traced.tracer.counters.words[layout.REGIONS_USED] = layout.N_REGIONS - 2
    for _ in range(5):
        in_thread(lambda: traced.call("a", 10))
    assert by_stage(traced.trace().processes[0].threads)["decode"] == Spent(50e-9, 5)
    assert traced.tracer.counters.words[layout.REGIONS_USED] == layout.N_REGIONS


def test_more_functions_than_slots(traced: Traced) -> None:
    for number in range(layout.N_FUNCTIONS + 50):
        traced.call(f"f{number}", 1, "read" if number % 2 else "decode")
    spent = by_stage([traced.main()])
    half = (layout.N_FUNCTIONS + 50) // 2
    assert [spent[stage].calls for stage in ("read", "decode")] == [half, half]
    assert traced.main().spent[Function("read", "(others)")].calls > 20


def test_more_sizes_than_rows(traced: Traced) -> None:
    """Beyond, they are no longer told apart."""
    slot = traced.tracer.slot("decode", "a")
    n_sizes = layout.N_KINDS + 100
    for width in range(1, n_sizes + 1):
        traced.tracer.count_kind(slot, "PNG", (width, 1), (width, 1), n_bytes=2)
        traced.tracer.count_kind(slot, "PNG", (width, 1), (width, 1), n_bytes=2)
    images = traced.trace().images
    assert sum(kind.count for kind in images) == 2 * n_sizes
    assert sum(kind.n_bytes for kind in images) == 4 * n_sizes
    others = images[0]
    assert (others.function.name, others.format, others.source) == ("(others)", "", (0, 0))
    assert others.count == 2 * (n_sizes - layout.N_KINDS + 1)


def test_an_image_counts_once_within_a_stage(traced: Traced) -> None:
    """A resize that calls a reduce is one image; a decode that calls a read is one of each."""
    tracer = traced.tracer

    def note(tracer: Tracer, done: Done) -> None:
        tracer.count(done.slot, 1, done.started)

    def wrap(stage: str, name: str, function: Any) -> Any:
        return tracer.timed(function, tracer.slot(stage, name), note)

    reduce = wrap("resize", "reduce", lambda: traced.spend(1))
    read = wrap("read", "read", lambda: traced.spend(1))

    def resize() -> None:
        traced.spend(3)
        reduce()
        read()

    wrap("resize", "resize", resize)()
    spent = by_stage([traced.main()])
    assert spent["resize"] == Spent(4e-9, 2, 1)
    assert spent["read"] == Spent(1e-9, 1, 1)


def test_the_least_time_of_an_image(traced: Traced) -> None:
    """Of calls with images; of all threads."""
    slot = traced.tracer.slot("forward", "model")
    traced.call("model", 9, "forward")

    def keep(images: int, ns: int) -> None:
        traced.tracer.keep_least(slot, images, ns)

    keep(0, 1)
    assert traced.main().spent[Function("forward", "model")].least_s == 0
    for images, ns in [(4, 400), (4, 200), (2, 300)]:
        keep(images, ns)
    assert traced.main().spent[Function("forward", "model")].least_s == 50e-9
    faster, unknown = Spent(least_s=20e-9), Spent()
    assert (Spent(least_s=50e-9) + faster + unknown).least_s == 20e-9


def test_a_note_that_fails_is_one_line(traced: Traced, capfd: pytest.CaptureFixture[str]) -> None:
    def note(*_: Any) -> None:
        raise ValueError("no shape")

    wrapped = traced.tracer.timed(abs, traced.tracer.slot("decode", "abs"), note)
    assert [wrapped(-1), wrapped(-2)] == [1, 2]
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("wallclock trace: images of")
    assert line.endswith("ValueError: no shape")


def test_a_full_disk_loses_counts_and_nothing_else(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write to a mapped page that the disk cannot hold would kill the process."""

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    in_thread(lambda: traced.call("a", 10))
    assert len(traced.trace().processes[0].threads) == 1
    with pytest.raises(OSError, match="No space left"):
        Counters(str(traced.folder), 5)


def test_a_file_that_was_cut_is_left_out(traced: Traced) -> None:
    (traced.folder / f"1-1{layout.COUNTERS}").write_bytes(b"\0" * 100)
    assert len(traced.trace().processes) == 1


class Tensor:
    """A tensor on a device of that name."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.is_cpu, self.is_cuda = device == "cpu", device == "cuda"

    def to(self, device: str = "", dtype: str = "") -> "Tensor":
        Moves.traced.spend(100)
        if device == "absent":
            raise RuntimeError
        return Tensor(device or self.device)

    def cuda(self) -> "Tensor":
        return self.to("cuda")

    def cpu(self) -> "Tensor":
        return self.to("cpu")

    def copy_(self, source: "Tensor", non_blocking: bool = False) -> "Tensor":
        Moves.traced.spend(7)
        return self

    def item(self) -> int:
        Moves.traced.spend(3)
        return 5

    tolist = numpy = item


class Moves:
    """The tracer whose clock the tensors turn."""

    traced: ClassVar[Traced]


def test_passes_on_a_device(device: Device, traced: Traced) -> None:
    """The time between a pass's events, and none of the work between two passes."""
    clock = DeviceClock(traced.tracer)
    pairs = []
    for _ in range(3):
        pair = clock.begin((device.tensor(),))
        device.keep_busy(20)
        clock.end(pair)
        pairs.append(pair)
        device.keep_busy(60)
    device.synchronize()
    events = [pair for pair in pairs if pair is not None]
    spent_s = sum(began.elapsed_time(ended) for began, ended in events) / 1e3
    from_first_to_last_s = events[0][0].elapsed_time(events[-1][1]) / 1e3
    traced.tracer.finish()
    trace = traced.trace()
    assert len(events) == 3
    assert trace.device_busy_s == pytest.approx(spent_s, rel=1e-3)
    assert 0.01 < spent_s < from_first_to_last_s
    assert trace.device


def test_a_pass_that_has_no_event(
    device: Device, traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the host, and while a graph is captured."""
    clock = DeviceClock(traced.tracer)
    assert clock.begin((Tensor("cpu"), device.tensor())) is None
    assert clock.begin(()) is None
    clock.end(None)
    monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: True)
    assert clock.begin((device.tensor(),)) is None
    assert traced.trace().device == ""


def moves(traced: Traced, cuda: str | None = "13.0", *, compiles: bool = False) -> Any:
    """A class of tensors whose methods are counted, by a torch that was built for this CUDA."""

    class Moving(Tensor):
        pass

    torch = SimpleNamespace(version=SimpleNamespace(cuda=cuda, hip=None), Tensor=Moving)
    patch_tensor(traced.tracer, torch, lambda: compiles)
    return Moving


def test_copies_by_their_direction(traced: Traced) -> None:
    moving = moves(traced)
    host, device = moving("cpu"), moving("cuda")
    assert host.to("cuda").is_cuda
    assert device.to("cpu").is_cpu
    host.to(dtype="half")
    device.to(dtype="half")
    device.copy_(host)
    host.copy_(device)
    assert (host.item(), device.item(), device.tolist()) == (5, 5, 5)
    with pytest.raises(RuntimeError):
        host.to("absent")
    assert traced.main().spent == {
        Function("h2d", "torch.Tensor.to"): Spent(100e-9, 1),
        Function("h2d", "torch.Tensor.copy_"): Spent(7e-9, 1),
        Function("d2h", "torch.Tensor.to"): Spent(100e-9, 1),
        Function("d2h", "torch.Tensor.copy_"): Spent(7e-9, 1),
        Function("d2h", "torch.Tensor.item"): Spent(3e-9, 1),
        Function("d2h", "torch.Tensor.tolist"): Spent(3e-9, 1),
    }


def test_nothing_is_counted_while_torch_compiles(traced: Traced) -> None:
    moving = moves(traced, compiles=True)
    moving("cpu").to("cuda")
    assert moving("cuda").item() == 5
    assert traced.main().spent == {}


@pytest.mark.parametrize("cuda", ["13.0", None])
def test_a_torch_without_devices_keeps_its_methods(cuda: str | None, traced: Traced) -> None:
    assert ("to" in vars(moves(traced, cuda))) == (cuda is not None)
