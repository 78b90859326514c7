"""Runtimes on a tiny DINOv2: the same vectors from each, and no silent mock model for any."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state
from torch._dynamo.exc import TorchDynamoException

from wallclock.corpus import synthetic
from wallclock.errors import Unavailable, UserError
from wallclock.measure import runtimes as protocol
from wallclock.spec import Cell, CorpusSpec, ModelSpec, Recipe, Slice
from wallclock.stages import forward, runtimes
from wallclock.stages.runtimes import Request, Runtime, export, ort_runtimes, torch_runtimes

MODEL = ModelSpec("tiny", dim=48, input_px=28)
HAS_GPU = torch.cuda.is_available()

on_gpu = pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")


@pytest.fixture(scope="module")
def images() -> Any:
    return np.random.default_rng(0).normal(size=(3, 3, 28, 28)).astype(np.float32)


@pytest.fixture(scope="module")
def reference(images: Any) -> Any:
    return forward.make(MODEL, "cpu", "fp32").run(torch.from_numpy(images)).numpy()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture
def request_for(images: Any, cache: Path, tmp_path: Path) -> Any:
    def make(dtype: str = "fp32", device: str = "cpu", opset: int = 23) -> Request:
        network = forward.load_network(MODEL)
        digest, _ = forward.digest_of(network)
        return Request(network, digest, images, dtype, device, cache, tmp_path, opset, threads=1)

    return make


@pytest.fixture(autouse=True)
def _compiler_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled runtime points these at its scratch folder: put them back."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.setenv("TRITON_CACHE_DIR", "")


def ran(built: Runtime) -> Any:
    built.run()
    built.synchronize()
    return built.vectors()


@pytest.mark.parametrize(
    ("name", "dtype", "provider", "error"),
    [
        ("pytorch", "fp32", "torch cpu float32", 0.0),
        ("pytorch", "fp16", "torch cpu float16", 0.02),
        ("pytorch", "bf16", "torch cpu bfloat16", 0.1),
        ("onnxruntime-cpu", "fp32", "CPUExecutionProvider", 1e-4),
        ("onnxruntime-cpu", "int8", "CPUExecutionProvider", 0.2),
    ],
)
def test_every_runtime_computes_the_models_vectors(
    request_for: Any, reference: Any, name: str, dtype: str, provider: str, error: float
) -> None:
    built = runtimes.build(name, request_for(dtype))
    found = protocol.compare(ran(built), reference)
    assert built.provider == provider
    assert found["max_rel_error"] <= error
    assert found["cosine_min"] > 0.99
    if dtype in ("bf16", "int8"):
        assert found["max_rel_error"] > 0, "rounded so coarsely and yet equal: FP32 ran"


def test_the_graph_has_its_position_embeddings_fitted_and_attention_whole(request_for: Any) -> None:
    graph = export.exported(request_for())
    assert not {"Resize", "Upsample", "Shape"} & set(graph.operators)
    assert graph.operators["Attention"] == 12
    older = export.exported(request_for(opset=20))
    assert "Attention" not in older.operators
    assert not {"IsNaN", "Where", "Resize"} & set(older.operators), (
        "work that the model does not do"
    )
    assert older.path != graph.path


def test_a_graph_that_still_interpolates_is_refused(
    request_for: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "_prepared", lambda request: request.network)
    with pytest.raises(RuntimeError, match="still holds Resize"):
        export.exported(replace(request_for(), cache=tmp_path / "graphs"))
    assert not list((tmp_path / "graphs").iterdir()), "half an export was left behind"


def test_a_graph_is_exported_once_and_again_when_it_is_damaged(
    request_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = export.exported(request_for())
    written = first.path.stat().st_mtime_ns
    again = export.exported(request_for())
    assert (again, again.path.stat().st_mtime_ns) == (first, written)

    first.path.write_bytes(first.path.read_bytes()[:-1])
    mended = export.exported(request_for())
    assert mended.path == first.path
    assert mended.path.stat().st_mtime_ns != written
    ort_runtimes.open_session(mended.path, [(ort_runtimes.CPU, {})], 1)


def test_the_graph_depends_on_weights_batch_and_dtype(request_for: Any, images: Any) -> None:
    asked = request_for()
    others = [
        replace(asked, weights_digest="other"),
        replace(asked, images=images[:2]),
        replace(asked, dtype="fp16"),
        replace(asked, opset=20),
    ]
    keys = {export._key(each) for each in [asked, *others]}
    assert len(keys) == 5


def test_the_seconds_of_an_int8_graph_do_not_depend_on_which_was_asked_for_first(
    request_for: Any,
) -> None:
    assert (
        export.exported(request_for("int8")).export_s
        > export.exported(request_for("fp32")).export_s
    )


@pytest.mark.parametrize("name", ["onnxruntime", "onnxruntime-tensorrt", "pytorch-cudagraph"])
def test_what_needs_a_gpu_says_so_on_a_cpu(request_for: Any, name: str) -> None:
    with pytest.raises(Unavailable, match=f"{name} runs on a CUDA GPU only"):
        runtimes.build(name, request_for("fp16"))


def test_an_unknown_runtime_or_dtype_is_a_users_mistake(request_for: Any) -> None:
    with pytest.raises(UserError, match="did you mean pytorch"):
        runtimes.check("pytroch", "cpu")
    with pytest.raises(UserError, match="bf16"):
        runtimes.build("onnxruntime-cpu", request_for("bf16"))


@pytest.mark.skipif(HAS_GPU, reason="the provider loads here")
@pytest.mark.parametrize("provider", [ort_runtimes.CUDA, ort_runtimes.TENSORRT])
def test_a_provider_that_does_not_load_is_unavailable_with_the_library_that_lacks(
    request_for: Any, provider: str, capfd: pytest.CaptureFixture[str]
) -> None:
    graph = export.exported(request_for())
    with pytest.raises(
        Unavailable, match=rf"{provider} did not load: lib\S+: cannot open shared object file"
    ):
        ort_runtimes.open_session(graph.path, [(provider, {})], 1)


def test_where_the_nodes_went_decides() -> None:
    cpu, cuda, tensorrt = ort_runtimes.CPU, ort_runtimes.CUDA, ort_runtimes.TENSORRT
    assert ort_runtimes.check_placement({cuda: 400}, cuda) == cuda
    assert ort_runtimes.check_placement({cuda: 3, tensorrt: 1}, tensorrt) == f"{tensorrt} + {cuda}"
    assert ort_runtimes.check_placement({cpu: 7}, cpu) == cpu
    with pytest.raises(Unavailable, match="left 2 nodes to the CPU"):
        ort_runtimes.check_placement({cuda: 398, cpu: 2}, cuda)
    with pytest.raises(
        Unavailable, match="took no part of the graph; it went to CUDAExecutionProvider"
    ):
        ort_runtimes.check_placement({cuda: 400}, tensorrt)
    with pytest.raises(Unavailable, match="went to no provider"):
        ort_runtimes.check_placement({}, cuda)


@pytest.mark.parametrize(
    "text",
    [
        "CUDA failure 2: out of memory ; GPU=0",
        "BFCArena: Failed to allocate memory for requested buffer",
    ],
)
def test_a_full_device_is_told_from_a_provider_that_is_not_there(text: str) -> None:
    found = ort_runtimes._explained(ort_state.RuntimeException(text), ort_runtimes.CUDA)
    assert isinstance(found, torch.OutOfMemoryError)
    assert text.split(" ;")[0] in str(found)


def test_a_compiler_that_is_not_there_is_unavailable(
    request_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_nothing(network: Any, dynamic: bool) -> Any:
        def fails(pixel_values: Any) -> Any:
            raise TorchDynamoException("\nNo working C++ compiler found\nSet TORCHDYNAMO_VERBOSE=1")

        return fails

    monkeypatch.setattr(torch, "compile", compile_nothing)
    with pytest.raises(
        Unavailable, match=r"torch\.compile failed: No working C\+\+ compiler found$"
    ):
        torch_runtimes.compiled(request_for())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler meets its own
def test_torch_compile_computes_the_same(request_for: Any, reference: Any) -> None:
    built = runtimes.build("pytorch-compile", request_for())
    assert protocol.compare(ran(built), reference)["max_rel_error"] < 1e-4
    assert built.compile_s is not None
    assert built.compile_s > 1


@pytest.mark.cuda
@on_gpu
@pytest.mark.parametrize("name", ["pytorch", "pytorch-compile", "pytorch-cudagraph", "onnxruntime"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_every_runtime_computes_the_same_on_a_gpu(
    request_for: Any, reference: Any, name: str, dtype: str
) -> None:
    protocol._forbid_tf32()
    built = runtimes.build(name, request_for(dtype, "cuda"))
    found = protocol.compare(ran(built), reference)
    assert found["max_rel_error"] < {"fp32": 1e-3, "fp16": 0.03}[dtype]
    if name == "onnxruntime":
        assert built.provider == ort_runtimes.CUDA


def test_comparing_vectors() -> None:
    vectors = np.array([[3, 4], [0, 2]], dtype=np.float32)
    assert protocol.compare(vectors, vectors) == {
        "cosine": 1.0,
        "cosine_min": 1.0,
        "max_rel_error": 0.0,
    }
    turned = protocol.compare(np.array([[3, 4], [2, 0]], dtype=np.float32), vectors)
    assert turned == {"cosine": 0.5, "cosine_min": 0.0, "max_rel_error": 0.5}
    for bad in (np.nan, np.inf):
        found = protocol.compare(np.array([[bad, 4], [0, 2]], dtype=np.float32), vectors)
        assert found == {"cosine": None, "cosine_min": None, "max_rel_error": None}
    with pytest.raises(ValueError, match="shape"):
        protocol.compare(vectors[:1], vectors)


def test_the_clock_waits_for_the_device() -> None:
    """A GPU's call returns before the work is done: the wait must be in every sample."""
    queued: list[str] = []
    waited_for: list[int] = []

    def wait() -> None:
        waited_for.append(len(queued))
        time.sleep(0.01)
        queued.clear()

    built = Runtime(
        lambda: queued.append("batch"), lambda: np.zeros((1, 1), np.float32), "fake", wait
    )
    built.run()  # what was queued before is not the first sample's
    samples = protocol.timed(built, 4, lambda done: None)
    assert waited_for == [1, 1, 1, 1, 1]
    assert len(samples) == 4
    assert min(samples) >= 10_000_000


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Slice:
    folder = tmp_path_factory.mktemp("corpus")
    return synthetic.prepare(
        CorpusSpec("synthetic"), "small_256", 3, folder, lambda done, total, what: None
    )


def cell_of(corpus: Slice, runtime: str, dtype: str, model: ModelSpec = MODEL) -> Cell:
    recipe = Recipe("test", runtime=runtime, dtype=dtype, batch_size=4)
    params = {"batches": 3, "warmup_batches": 2, "opset": 23}
    return Cell("onnx", "runtime", "test", 0, recipe, corpus, model, params)


def work_in(folder: Path) -> Path:
    """A scratch folder where a run would have it; exported graphs go to `folder / "onnx"`."""
    work = folder / "runs" / "onnx" / ".test.work"
    work.mkdir(parents=True)
    return work


@pytest.mark.parametrize(("runtime", "dtype"), [("pytorch", "bf16"), ("onnxruntime-cpu", "fp32")])
def test_one_cell(corpus: Slice, tmp_path: Path, runtime: str, dtype: str) -> None:
    found = protocol.runtime(cell_of(corpus, runtime, dtype), work_in(tmp_path), lambda done: None)
    values = found.values
    assert len(found.samples["batch"]) == 3, "warm-up is not a sample"
    assert values["warmup_batches"] == 2
    assert values["warmup_s"] > 0
    assert values["n_compared"] == 3, "a batch of four from three images: one comes twice"
    assert values["cosine_min"] > 0.99
    assert values["peak_gpu_mem_gib"] is None
    assert values["weights_digest"] == forward.make(MODEL, "cpu", "fp32").weights_digest
    if runtime == "onnxruntime-cpu":
        assert values["nodes"] == {"CPUExecutionProvider": sum(values["nodes"].values())}
        assert values["export_s"] > 0
        assert values["compile_s"] > 0
        assert len(list((tmp_path / "onnx").iterdir())) == 1


def test_the_first_batches_warm_up_and_are_not_samples(
    corpus: Slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []

    def slow_at_first(request: Request) -> Runtime:
        built = torch_runtimes.eager(request)

        def run() -> None:
            runs.append(len(runs))
            time.sleep(1 if len(runs) <= 2 else 0)
            built.run()

        return replace(built, run=run)

    monkeypatch.setattr(torch_runtimes, "compiled", slow_at_first)
    found = protocol.runtime(
        cell_of(corpus, "pytorch-compile", "fp32"), work_in(tmp_path), lambda done: None
    )
    assert len(runs) == 5
    assert found.values["warmup_s"] >= 2
    # Two slow batches, each longer than any after them: whatever else the machine does meanwhile.
    assert max(found.samples["batch"]) < found.values["warmup_s"] * 1e9


def test_wrong_vectors_are_seen(
    corpus: Slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runtime that leaves out a layer is fast; what it is compared with is not its own work."""

    def lazy(request: Request) -> Runtime:
        request.network.encoder.layer = request.network.encoder.layer[:-1]
        return torch_runtimes.eager(request)

    monkeypatch.setattr(torch_runtimes, "compiled", lazy)
    found = protocol.runtime(
        cell_of(corpus, "pytorch-compile", "fp32"), work_in(tmp_path), lambda done: None
    )
    assert found.values["max_rel_error"] > 0.001


def test_a_stand_in_has_no_runtimes(corpus: Slice, tmp_path: Path) -> None:
    model = ModelSpec("null", weights="none")
    with pytest.raises(Unavailable, match="without a network"):
        protocol.runtime(
            cell_of(corpus, "pytorch", "fp32", model), work_in(tmp_path), lambda done: None
        )
