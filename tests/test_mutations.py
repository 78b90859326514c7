"""Corrupt the path from files to the sink in one place: the gate that judges its output fails."""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.common import judge_fidelity
from experiments.end_to_end import judge_sink
from harness.corpora.manifest import Item, Manifest
from harness.engines import pipeline
from harness.engines.inference import OnGpu, OnHost
from harness.engines.loaders import open_loader
from harness.engines.writer import WriterThread, open_writer
from harness.protocols import fidelity
from harness.protocols.loop import run_pass
from harness.protocols.protocol import no_progress
from harness.protocols.sink_check import check_sink
from harness.records import Record
from harness.runtimes import compiled
from harness.spec import Cell, Recipe
from tests import fake_cuda, making
from tests.fake_cuda import Event, Stream
from tests.harness.engines.conftest import manifest_in
from wallclock.loader import threads
from wallclock.loader.threads import ThreadLoader
from wallclock.recipe import ModelSpec
from wallclock.stages import normalize, resize
from wallclock.stages.forward import networks

Patch = pytest.MonkeyPatch
Mutation = Callable[[Patch], object]

MODEL = ModelSpec("tiny", dim=48, input_px=28)
HOST = Recipe("host", "simplejpeg", "torch", engine="threads", workers=2, batch_size=16)
HOST = replace(HOST, normalize_on="device")
COMPILED, CUDA = replace(HOST, name="compiled", compile="compile"), replace(HOST, name="cuda")
#: Forty images three times: the last batch is half full.
BATCHES = [list(range(at, min(at + 16, 120))) for at in range(0, 120, 16)]


class Graph:
    replay: Callable[[], Any]


def queued(result: Any, compute: Callable[[], Any]) -> Any:
    Stream.current.put(lambda: result.copy_(compute()))
    return result


@pytest.fixture(scope="module", autouse=True)
def _few_layers() -> Iterator[None]:
    with Patch.context() as patch:
        patch.setattr(networks, "_LAYERS", 2)
        networks.load_network(MODEL)  # transformers is imported before torch.cuda is a fake
        yield


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Forty images; the fourth is gone since it was listed."""
    made = manifest_in(tmp_path_factory.mktemp("images"), 40)
    (made.root / made.items[3].path).unlink()
    return made


@pytest.fixture(autouse=True)
def _device(monkeypatch: Patch) -> None:
    """torch.cuda's streams are such streams; `torch.compile` compiles nothing."""
    fake_cuda.install(monkeypatch)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, **_: nullcontext())
    monkeypatch.setattr(torch, "compile", lambda step, dynamic: lambda batch: step(batch))


def fault(recipe: Recipe, manifest: Manifest, folder: Path) -> str:
    """What the gate says of the file that a pass with this recipe writes."""
    stages, on_gpu = pipeline.device_stages(recipe, MODEL, folder), recipe == CUDA
    with (
        open_loader(manifest, recipe, MODEL, BATCHES) as loader,
        open_writer(stages.serialize, stages.finish, in_thread=True) as writer,
    ):
        Stream.device.made.clear()
        source: Any = in_one_buffer(loader) if on_gpu else loader
        to = OnGpu(on_streams(stages), writer, 2) if on_gpu else OnHost(stages, writer)
        result = run_pass(source, None, no_progress, inference=to, max_failures=9)
    assert stages.output is not None
    values = check_sink(stages.output, BATCHES, result.failures, manifest, recipe, MODEL)
    assert values["sink_checked"] == 3 * 8
    cell = Cell("t4", "throughput", "x", 0, recipe, None, MODEL)
    return judge_sink(Record(cell, values=values))


def on_streams(stages: pipeline.DeviceStages) -> pipeline.DeviceStages:
    """As a GPU runs them: a result is there only once its stream came to it."""

    def h2d(images: Any) -> Any:
        source = torch.from_numpy(images)
        return queued(torch.zeros_like(source), lambda: source)

    def embed(images: Any) -> Any:
        return queued(torch.zeros(len(images), MODEL.dim), lambda: stages.forward(images))

    return replace(stages, h2d=h2d, forward=embed)


def in_one_buffer(loader: Any) -> Iterator[Any]:
    """Every batch in the same memory: it is the consumer's until it asks for the next."""
    memory = np.zeros((HOST.batch_size, MODEL.input_px, MODEL.input_px, 3), np.uint8)
    for batch in loader:
        memory[: len(batch.ids)] = batch.images
        yield replace(batch, images=memory[: len(batch.ids)])


def as_graph(patch: Patch) -> None:
    """The compiled network is a real `CudaGraph`, whose replay the host executes."""

    def as_compiled(step: Any, dynamic: bool) -> Any:
        made: list[Any] = []

        def run(batch: Any) -> Any:
            if not made:
                graph = compiled.CudaGraph(step, batch.clone())
                made.append(graph)
                graph._graph.replay = lambda: graph._output.copy_(step(graph._input))
            return made[0](batch)

        return run

    patch.setattr(torch, "compile", as_compiled)


def replaced(owner: Any, name: str, change: Callable[..., Any]) -> Mutation:
    """Calls `change` with what `name` was and its arguments."""
    real = getattr(owner, name)
    return lambda patch: patch.setattr(owner, name, lambda *a, **k: change(real, *a, **k))


def released_early(real: Any, loader: Any) -> Any:
    buffer, batch = real(loader)
    loader.release(buffer)
    loader._dispatch()
    # What the workers overwrite now, they would overwrite at some time.
    deadline = time.monotonic() + 60
    while loader._results.qsize() < sum(loader._ring._pending.values()):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return None, batch


def rows_shifted(real: Any, rows: Any, chunks: Any) -> Any:
    rows[:8] = np.roll(rows[:8], 1, axis=0)
    return real(rows, chunks)


def gap_left(real: Any, rows: Any, chunks: Any) -> int:
    return sum(len(chunk.kept) for chunk in chunks)


def unsynchronized(number: int) -> Mutation:
    """The host does not wait for the events of the n-th stream: 0 copies in, 2 copies out."""

    def synchronize(real: Any, event: Event) -> None:
        if event.stream not in Stream.device.made[number : number + 1]:
            real(event)

    def mutate(patch: Patch) -> None:
        replaced(Event, "synchronize", synchronize)(patch)
        patch.setattr(Event, "elapsed_time", lambda *events: 0.0)  # it refuses what is not reached

    return mutate


def h2d_not_awaited(real: Any, stream: Stream, event: Event) -> None:
    if not stream.eager:
        real(stream, event)


def mean_for_std(real: Any, mean: Any, std: Any, device: str) -> Any:
    return real(std, mean, device)


def bgr(real: Any, *how: Any) -> Any:
    return lambda rgb: real(*how)(rgb.flip(-1))


def stale_input(patch: Patch) -> None:
    as_graph(patch)
    replay = replaced(compiled.CudaGraph, "__call__", lambda _, graph, batch: graph._graph.replay())
    replay(patch)


def padding_first(real: Any, run: Any, size: int) -> Any:
    def padded(batch: Any) -> Any:
        padding = batch.new_zeros(size - len(batch), *batch.shape[1:])
        return run(torch.cat([padding, batch]))[: len(batch)]

    return padded


class Late:
    """Returns what it was called with the time before."""

    before: Any = None

    def __call__(self, value: Any) -> Any:
        before, self.before = self.before, value
        return value if before is None else before


def one_batch_late(real: Any, step: Any, dynamic: bool) -> Any:
    late = Late()
    return lambda batch: late(step(batch))


def others_vectors(real: Any, writer: Any, ids: Any, vectors: Any, requested: int) -> None:
    late = vars(writer).setdefault("late", Late())
    real(writer, ids, np.resize(late(vectors), vectors.shape), requested)


#: What is wrong → the path that has it, and how it comes in.
MUTATIONS: dict[str, tuple[Recipe, Mutation]] = {
    "a buffer is released early": (HOST, replaced(ThreadLoader, "take", released_early)),
    "the rows of a chunk are shifted by one": (HOST, replaced(threads, "compact", rows_shifted)),
    "a failed image leaves a gap": (HOST, replaced(threads, "compact", gap_left)),
    "forward does not wait for h2d": (CUDA, replaced(Stream, "wait_event", h2d_not_awaited)),
    "vectors are read before d2h ended": (CUDA, unsynchronized(2)),
    "a pinned buffer is filled again during h2d": (CUDA, unsynchronized(0)),
    "mean and std are swapped on the device": (
        HOST,
        replaced(normalize, "on_device", mean_for_std),
    ),
    "the device takes RGB for BGR": (HOST, replaced(normalize, "on_device", bgr)),
    "a graph is replayed with its old input": (COMPILED, stale_input),
    "the padding's vectors are kept": (COMPILED, replaced(compiled, "fixed_shape", padding_first)),
    "a compiled network is late": (COMPILED, replaced(torch, "compile", one_batch_late)),
    "ids get the vectors of another batch": (HOST, replaced(WriterThread, "put", others_vectors)),
}
INTACT: dict[str, tuple[Recipe, Mutation]] = {
    **{recipe.name: (recipe, lambda patch: None) for recipe in (HOST, COMPILED, CUDA)},
    "graph": (COMPILED, as_graph),
}


@pytest.mark.parametrize("name", [*INTACT, *MUTATIONS])
def test_the_gate_fails_for_a_mutation_only(
    name: str, manifest: Manifest, tmp_path: Path, monkeypatch: Patch
) -> None:
    recipe, change = (INTACT | MUTATIONS)[name]
    change(monkeypatch)
    message = fault(recipe, manifest, tmp_path)
    assert message == "" if name in INTACT else message.startswith("cosine ")


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
