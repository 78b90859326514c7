"""How long a device was busy, and copies to and from it, with devices that tests turn."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tests.devices import Device
from tests.wallclock.trace.test_tracer import Traced
from wallclock.trace.inside.torch_calls import DeviceClock, patch_tensor
from wallclock.trace.record import Function, Spent


class Event:
    """An event of a stream: recorded at once, reached when the device gets there."""

    #: Milliseconds of work that were queued, and that the device has done.
    queued: ClassVar[float] = 0.0
    done: ClassVar[float] = 0.0
    made: ClassVar[int] = 0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        Event.made += 1
        self.at = -1.0

    def record(self) -> None:
        self.at = Event.queued

    def query(self) -> bool:
        return self.at <= Event.done

    def elapsed_time(self, end: "Event") -> float:
        return end.at - self.at


class Cuda:
    """The part of `torch.cuda` that is used."""

    Event = Event
    capturing = False

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def get_device_name(self, device: str) -> str:
        return f"a fake {device}"


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


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Traced]:
    made = Moves.traced = Traced(tmp_path)
    yield made
    made.tracer.local.__dict__.clear()


@pytest.fixture
def clock(traced: Traced) -> DeviceClock:
    Event.queued = Event.done = 0.0
    Event.made = 0
    return DeviceClock(traced.tracer, Cuda())


def work(clock: DeviceClock, ms: float) -> None:
    """A pass that queues so much work."""
    pair = clock.begin((5, Tensor("cuda")))
    Event.queued += ms
    clock.end(pair)


def test_passes_are_added_up_once_the_device_is_done(clock: DeviceClock, traced: Traced) -> None:
    work(clock, 3.0)
    Event.queued += 50.0  # no pass
    work(clock, 4.0)
    assert traced.trace().device_busy_s == 0.0
    Event.done = 3.0
    clock.collect()
    assert traced.trace().device_busy_s == 0.003
    Event.done = Event.queued
    work(clock, 0.5)
    assert traced.trace().device_busy_s == 0.007
    Event.done = Event.queued
    traced.tracer.finish()
    trace = traced.trace()
    assert trace.device_busy_s == 0.0075
    assert trace.device == "a fake cuda"


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


def test_without_a_gpu_there_is_no_event(clock: DeviceClock, traced: Traced) -> None:
    assert clock.begin((Tensor("cpu"), Tensor("cuda"))) is None
    assert clock.begin(()) is None
    clock.end(None)
    assert Event.made == 0
    assert traced.trace().device == ""


def test_nothing_is_recorded_into_a_graph(
    clock: DeviceClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cuda, "capturing", True)
    assert clock.begin((Tensor("cuda"),)) is None


def torch_with(tensor: type, cuda: str | None = "13.0") -> Any:
    return SimpleNamespace(version=SimpleNamespace(cuda=cuda, hip=None), Tensor=tensor)


def moves(traced: Traced) -> Any:
    """A class of tensors whose methods are counted."""

    class Moving(Tensor):
        pass

    patch_tensor(traced.tracer, torch_with(Moving), lambda: False)
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
    class Moving(Tensor):
        pass

    patch_tensor(traced.tracer, torch_with(Moving), lambda: True)
    Moving("cpu").to("cuda")
    assert Moving("cuda").item() == 5
    assert traced.main().spent == {}


@pytest.mark.parametrize("cuda", ["13.0", None])
def test_a_torch_without_devices_keeps_its_methods(cuda: str | None, traced: Traced) -> None:
    class Moving(Tensor):
        pass

    patch_tensor(traced.tracer, torch_with(Moving, cuda), lambda: False)
    assert ("to" in vars(Moving)) == (cuda is not None)
