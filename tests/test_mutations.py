"""Corrupt the path from files to the sink in one place: the gate that judges its output fails."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments._common import judge_fidelity
from experiments._end_to_end import judge_sink
from tests import making
from tests.engines.conftest import manifest_in
from wallclock.corpus.manifest import Item, Manifest
from wallclock.engines import pipeline, ring, threads
from wallclock.engines.inference import CudaInference, HostInference
from wallclock.engines.loaders import open_loader
from wallclock.engines.pipeline import DeviceStages
from wallclock.engines.threads import ThreadLoader
from wallclock.engines.writer import WriterThread, open_writer
from wallclock.measure import fidelity
from wallclock.measure.loop import run_pass
from wallclock.measure.protocol import no_progress
from wallclock.measure.sink_check import check_sink
from wallclock.records import Record
from wallclock.spec import Cell, ModelSpec, Recipe
from wallclock.stages import forward, normalize, resize
from wallclock.stages.forward import networks, pytorch

MODEL = ModelSpec("tiny", dim=48, input_px=28)
HOST = Recipe("host", "simplejpeg", "torch", engine="threads", workers=2, batch_size=16)
HOST = replace(HOST, normalize_on="device")
COMPILED, CUDA = replace(HOST, name="compiled", compile="compile"), replace(HOST, name="cuda")
GRAPH = replace(HOST, name="graph")
#: Forty images three times: the last batch is half full.
BATCHES = [list(range(at, min(at + 16, 120))) for at in range(0, 120, 16)]


class Device:
    """CUDA's streams and events: the copying streams run as late as they may, forward as early."""

    def __init__(self) -> None:
        self.streams: list[Any] = []
        self.current = self.Stream()

    def Stream(self) -> Any:  # noqa: N802 - torch's name
        self.streams.append(Stream(eager=len(self.streams) == 2))
        return self.streams[-1]

    def Event(self, enable_timing: bool) -> Any:  # noqa: N802 - torch's name
        return Event(self)

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before


class Event:
    reached = False
    recorded_on: Any = None

    def __init__(self, device: Device) -> None:
        self._device = device

    def record(self) -> None:
        self.recorded_on = self._device.current
        self.recorded_on.put(lambda: setattr(self, "reached", True))

    def reach(self) -> None:
        while self.recorded_on and not self.reached:
            self.recorded_on.step()

    def synchronize(self) -> None:
        self.reach()

    def elapsed_time(self, other: Any) -> float:
        return 0.0


class Stream:
    def __init__(self, eager: bool) -> None:
        self.work: deque[Any] = deque()
        self.eager = eager

    def put(self, work: Any) -> None:
        self.work.append(work)
        while self.eager and self.work and getattr(self.work[0], "reached", True):
            self.step()

    def step(self) -> None:
        work = self.work.popleft()
        work.reach() if isinstance(work, Event) else work()

    def wait_event(self, event: Event) -> None:
        self.put(event)

    def wait_stream(self, stream: Any) -> None: ...


class Graph:
    """A captured graph; `graph_of` says what its replay does."""

    replay: Callable[[], Any]


def on(device: Device, stages: DeviceStages, network: Callable[[Any], Any]) -> DeviceStages:
    """The stages as a GPU runs them: every result is there only once its stream came to it."""

    def queued(result: Any, compute: Callable[[], Any]) -> Any:
        device.current.put(lambda: result.copy_(compute()))
        return result

    def h2d(images: Any) -> Any:
        source = torch.from_numpy(images)
        return queued(torch.zeros_like(source), lambda: source)

    def embed(images: Any) -> Any:
        return queued(torch.zeros(len(images), MODEL.dim), lambda: network(images))

    return replace(stages, h2d=h2d, forward=embed)


@pytest.fixture(scope="module", autouse=True)
def _few_layers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "_LAYERS", 2)
        networks.load_network(MODEL)  # transformers is imported before torch.cuda is a fake
        yield


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Forty images; the fourth is gone since it was listed."""
    made = manifest_in(tmp_path_factory.mktemp("images"), 40)
    (made.root / made.items[3].path).unlink()
    return made


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """`torch.cuda` is such a device; `torch.compile` compiles nothing."""
    fake, copy = Device(), torch.Tensor.copy_

    def copy_(target: Any, source: Any, non_blocking: bool = False) -> Any:
        # Only the vectors' way back is queued; a replay's input is copied inside `forward`.
        if non_blocking and [fake.current] == fake.streams[3:]:
            fake.current.put(lambda: copy(target, source))
            return target
        return copy(target, source)

    for name in ("Stream", "Event", "stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: fake.current)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, **_: fake.stream(fake.current))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    monkeypatch.setattr(torch.Tensor, "copy_", copy_)
    monkeypatch.setattr(torch, "empty", lambda *size, **options: torch.zeros(*size))
    monkeypatch.setattr(torch, "compile", lambda step, dynamic: lambda batch: step(batch))
    return fake


def graph_of(recipe: Recipe) -> Callable[[Any], Any]:
    """The network behind the real `CudaGraph`, whose replay the host executes."""
    mean_std = normalize.on_device(*MODEL.statistics, "cpu")
    request = replace(forward.prepare(MODEL, recipe, mean_std, Path()), compile="cuda_graphs")
    captured: list[Any] = []
    real = pytorch.CudaGraph.__init__

    def capture(graph: Any, step: Any, batch: Any) -> None:
        real(graph, step, batch)
        captured.append(graph)
        graph._graph.replay = lambda: graph._output.copy_(step(graph._input))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytorch.CudaGraph, "__init__", capture)
        run = forward.build(request).run
    assert captured
    return run


def fault(recipe: Recipe, device: Device, manifest: Manifest, folder: Path) -> str:
    """What the gate says of the file that a pass with this recipe writes."""
    stages = pipeline.device_stages(recipe, MODEL, folder)
    on_gpu = recipe in (CUDA, GRAPH)
    if on_gpu:
        network = graph_of(recipe) if recipe == GRAPH else stages.forward
        stages = on(device, stages, network)
    with (
        open_loader(manifest, recipe, MODEL, BATCHES) as loader,
        open_writer(stages.serialize, stages.finish, in_thread=True) as writer,
    ):
        source: Any = in_one_buffer(loader) if on_gpu else loader
        device.streams[1:] = []
        to = CudaInference(stages, writer, 2) if on_gpu else HostInference(stages, writer)
        result = run_pass(source, None, no_progress, inference=to, max_failures=9)
    assert stages.output is not None
    values = check_sink(stages.output, BATCHES, result.failures, manifest, recipe, MODEL)
    cell = Cell("t4", "throughput", "x", 0, recipe, None, MODEL)
    return judge_sink(Record(cell, values={**values, "n_embedded": result.images}))


def in_one_buffer(loader: Any) -> Iterator[Any]:
    """Every batch in the same memory: it is the consumer's until it asks for the next."""
    memory = np.zeros((HOST.batch_size, MODEL.input_px, MODEL.input_px, 3), np.uint8)
    for batch in loader:
        memory[: len(batch.ids)] = batch.images
        yield replace(batch, images=memory[: len(batch.ids)])


Patch = pytest.MonkeyPatch


def released_early(patch: Patch) -> None:
    real = ThreadLoader._batch

    def batch(loader: Any, chunks: Any) -> Any:
        made = real(loader, chunks)
        loader._release_current()
        # What the workers overwrite now, they would overwrite at some time.
        deadline = time.monotonic() + 60
        while loader._results.qsize() < sum(loader._ring._pending.values()):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return made

    patch.setattr(ThreadLoader, "_batch", batch)


def rows_shifted(patch: Patch) -> None:
    real = ring.compact

    def compact(rows: Any, chunks: Any) -> int:
        rows[:8] = np.roll(rows[:8], 1, axis=0)
        return real(rows, chunks)

    patch.setattr(threads, "compact", compact)


def gap_left(patch: Patch) -> None:
    patch.setattr(threads, "compact", lambda rows, chunks: sum(len(one.kept) for one in chunks))


def h2d_not_awaited(patch: Patch) -> None:
    def wait_event(stream: Stream, event: Event) -> None:
        if not stream.eager:
            stream.put(event)

    patch.setattr(Stream, "wait_event", wait_event)


def unsynchronized(stream: int) -> Callable[[Patch], None]:
    """The host does not wait for the events of a stream: 1 copies in, 3 copies out."""

    def mutate(patch: Patch) -> None:
        def synchronize(event: Event) -> None:
            if event.recorded_on is not event._device.streams[stream]:
                event.reach()

        patch.setattr(Event, "synchronize", synchronize)

    return mutate


def normalized(change: Callable[[Any, Any, Any], Any]) -> Callable[[Patch], None]:
    real = normalize.on_device
    return lambda patch: patch.setattr(normalize, "on_device", lambda *how: change(real, *how[:2]))


def swapped(real: Any, mean: Any, std: Any) -> Any:
    return real(std, mean, "cpu")


def bgr(real: Any, mean: Any, std: Any) -> Any:
    return lambda pixels: real(mean, std, "cpu")(pixels.flip(-1))


def stale_input(patch: Patch) -> None:
    def replay(graph: Any, batch: Any) -> Any:
        graph._graph.replay()
        return graph._output.clone()

    patch.setattr(pytorch.CudaGraph, "__call__", replay)


def padding_first(patch: Patch) -> None:
    def fixed_shape(run: Any, size: int) -> Any:
        def padded(batch: Any) -> Any:
            whole = torch.zeros((size, *batch.shape[1:]), dtype=batch.dtype)
            whole[size - len(batch) :] = batch
            return run(whole)[: len(batch)]

        return padded

    patch.setattr(pytorch, "fixed_shape", fixed_shape)


def one_batch_late(patch: Patch) -> None:
    def compiled(step: Any, dynamic: bool) -> Any:
        results: list[Any] = []

        def run(batch: Any) -> Any:
            results.append(step(batch))
            return results[-2 if len(results) > 1 else -1]

        return run

    patch.setattr(torch, "compile", compiled)


def others_vectors(patch: Patch) -> None:
    put, before = WriterThread.put, list[Any]()

    def mismatched(writer: Any, ids: Any, vectors: Any, requested: int) -> None:
        before.append(vectors)
        put(writer, ids, np.resize(before[max(0, len(before) - 2)], vectors.shape), requested)

    patch.setattr(WriterThread, "put", mismatched)


#: What is wrong → the path that has it, and how it comes in.
MUTATIONS: dict[str, tuple[Recipe, Callable[[Patch], None]]] = {
    "a buffer is released before it was read": (HOST, released_early),
    "the rows of a chunk are shifted by one": (HOST, rows_shifted),
    "a failed image leaves a gap": (HOST, gap_left),
    "forward does not wait for h2d": (CUDA, h2d_not_awaited),
    "vectors are read before d2h ended": (CUDA, unsynchronized(3)),
    "a pinned buffer is filled again during h2d": (CUDA, unsynchronized(1)),
    "mean and std are swapped on the device": (HOST, normalized(swapped)),
    "the device takes RGB for BGR": (HOST, normalized(bgr)),
    "a graph is replayed with its old input": (GRAPH, stale_input),
    "the padding's vectors are kept": (COMPILED, padding_first),
    "a compiled network returns its last result": (COMPILED, one_batch_late),
    "ids get the vectors of another batch": (HOST, others_vectors),
}


@pytest.mark.parametrize("recipe", [HOST, COMPILED, CUDA, GRAPH], ids=lambda recipe: recipe.name)
def test_an_intact_path_passes(
    recipe: Recipe, device: Device, manifest: Manifest, tmp_path: Path
) -> None:
    assert fault(recipe, device, manifest, tmp_path) == ""


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_fails_the_gate(
    name: str, device: Device, manifest: Manifest, tmp_path: Path, monkeypatch: Patch
) -> None:
    recipe, mutate = MUTATIONS[name]
    mutate(monkeypatch)
    assert fault(recipe, device, manifest, tmp_path).startswith("cosine ")


def test_a_scaled_image_squeezed_fails_the_gate(tmp_path: Path, monkeypatch: Patch) -> None:
    """Decoded to 1/8 it is 35.125 px wide, in 36: its own pixels are wrong, in every path."""
    data = making.jpeg(281, 281)
    (tmp_path / "0.jpg").write_bytes(data)
    item = Item("0", "0.jpg", len(data), 281, 281, "", "jpeg", "baseline", 3, 0)
    folder = Manifest("folder", "original", tmp_path, (item,))
    fast = replace(HOST, dct_scale="auto", engine="serial")
    limits = {"min_psnr_db": 25, "min_cosine": 0, "max_loss_db": 1, "not_below_paper": True}

    def gate() -> object:
        pixels = {0: fidelity.resized(fast, MODEL, folder, {})["0"]}
        values = fidelity.compare_loader_output(pixels, folder, MODEL, "cpu", 0)
        return judge_fidelity(values, limits, "random")["gate"]

    assert gate() == "passed"
    monkeypatch.setattr(resize, "extent", lambda size, full: size)
    assert gate() == "failed"
