"""Protocol `runtime`: warm-up apart, the device waited for, vectors compared."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.layers.measure import calls_by_name
from experiments.onnx import measure as protocol
from harness import runtimes
from harness.protocols.network import timed
from harness.spec import Cell, Recipe, Slice
from tests.harness.test_profiler import FakeClock
from wallclock import machine
from wallclock.errors import Unavailable, UserError
from wallclock.recipe import ModelSpec
from wallclock.stages.forward import Network, networks

MODEL = ModelSpec("tiny", dim=48, input_px=28)


@pytest.fixture(autouse=True)
def _compiler_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The protocol sets these to its scratch folder: restore them. Two layers are faster."""
    monkeypatch.setattr(networks, "_LAYERS", 2)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.setenv("TRITON_CACHE_DIR", "")


@pytest.fixture
def measure(corpus: Slice, tmp_path: Path) -> Any:
    """Run the protocol in a scratch folder where a run would have it."""
    work = tmp_path / "runs" / "onnx" / ".test.work"
    work.mkdir(parents=True)

    def run(runtime: str, dtype: str = "fp32", model: ModelSpec = MODEL) -> Any:
        recipe = Recipe("test", runtime=runtime, dtype=dtype, batch_size=20)
        params = {"batches": 3, "warmup_batches": 2, "opset": 23}
        cell = Cell("onnx", "runtime", "test", 0, recipe, corpus, model, params)
        return protocol.runtime(cell, work, lambda done: None)

    return run


@pytest.mark.parametrize(
    ("runtime", "dtype", "converted"),
    [("pytorch", "bf16", "torch.bfloat16"), ("onnxruntime-cpu", "fp32", "torch.float32")],
)
@pytest.mark.slow
def test_one_cell(
    measure: Any, tmp_path: Path, monkeypatch: Any, runtime: str, dtype: str, converted: str
) -> None:
    build, runs = runtimes.build, list[Any]()

    def counted(request: runtimes.NetworkRequest) -> Network:
        network = build(request)

        def run(batch: Any) -> Any:
            runs.append(batch.dtype)
            return network.run(batch)

        return replace(network, run=run)

    monkeypatch.setattr(runtimes, "build", counted)
    monkeypatch.setattr(machine, "computes_bf16", lambda: False)
    result = measure(runtime, dtype)
    values = result.values
    assert len(result.samples["batch"]) == 3
    in_pytorch = runtime == "pytorch"
    assert len(runs) == 1 + 2 + 3 + in_pytorch, "reference, warm-up, samples, a look at attention"
    assert values.get("attention") == ("fused" if in_pytorch else None)
    assert str(runs[-1]) == converted, "the batch is converted before the clock starts"
    assert (values["warmup_batches"], values["warmup_s"] > 0) == (2, True)
    assert ("emulated" in values["provider"]) == (dtype == "bf16")
    assert values["n_compared"] == 18, "a batch of twenty from 18 images: two repeat"
    assert values["cosine_min"] > 0.99
    assert values["peak_gpu_mem_gib"] is None
    network = runtimes.make(MODEL, Recipe("test"), None, cache=tmp_path)
    assert values["weights_digest"] == network.weights_digest
    if runtime == "onnxruntime-cpu":
        assert values["nodes"] == {"CPUExecutionProvider": sum(values["nodes"].values())}
        assert min(values["export_s"], values["compile_s"]) > 0
        assert len(list((tmp_path / "onnx").iterdir())) == 1


def test_openvino_takes_pixels(
    measure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openvino")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    values = measure("openvino").values
    assert (values["provider"], values["n_compared"]) == ("openvino cpu fp32", 18)
    assert values["cosine_min"] > 0.99999
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(Unavailable, match="openvino is not installed"):
        measure("openvino")


def test_wrong_vectors_are_seen(measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that skips a layer is fast; it is compared with a reference of its own."""
    build = runtimes.build

    def lazy(request: runtimes.NetworkRequest) -> Network:
        if request.compile == "compile":
            request.network.encoder.layer = request.network.encoder.layer[:-1]
        return build(replace(request, compile="none"))

    monkeypatch.setattr(runtimes, "build", lazy)
    assert measure("pytorch-compile").values["max_rel_error"] > 0.001


@pytest.mark.parametrize(
    ("runtime", "error", "message"),
    [
        ("onnxruntime", Unavailable, "onnxruntime runs on a CUDA GPU only"),
        ("onnxruntime-tensorrt", Unavailable, "tensorrt runs on a CUDA GPU only"),
        ("pytorch-cudagraph", Unavailable, "cudagraph runs on a CUDA GPU only"),
        ("pytroch", UserError, "did you mean pytorch"),
        ("onnxruntime-cpu", UserError, "no recipe.dtype of runtime=onnxruntime is called 'bf16'"),
    ],
)
def test_resolve_refuses(runtime: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        protocol.resolve(Recipe("test", runtime=runtime, dtype="bf16"))


def test_mock_model_is_unavailable(measure: Any) -> None:
    with pytest.raises(Unavailable, match="without a network"):
        measure("pytorch", model=ModelSpec("null", weights="none"))


def test_compare() -> None:
    vectors = np.array([[3, 4], [0, 2]], dtype=np.float32)

    def compared(other: list[list[float]]) -> tuple[float | None, ...]:
        distances = protocol.compare(np.array(other, dtype=np.float32), vectors)
        assert list(distances) == ["cosine", "cosine_min", "max_rel_error"]
        return tuple(distances.values())

    assert compared([[3, 4], [0, 2]]) == (1, 1, 0)
    assert compared([[3, 4], [2, 0]]) == (0.5, 0, 0.5)
    for bad in (np.nan, np.inf):
        assert compared([[bad, 4], [0, 2]]) == (None, None, None)
    with pytest.raises(ValueError, match="shape"):
        protocol.compare(vectors[:1], vectors)


def test_a_label_is_the_hosts_call_not_its_span_on_the_device() -> None:
    """CUDA's activity lists a label a second time; whichever comes last must not win."""
    host, device = (
        SimpleNamespace(key="module::", count=1, device_type=SimpleNamespace(name=kind))
        for kind in ("CPU", "CUDA")
    )
    for both in ((host, device), (device, host)):
        assert calls_by_name(both) == {"module::": host}


def test_attention_is_read_from_what_ran() -> None:
    """A configuration that says sdpa may run its plain form."""
    x = torch.randn(1, 2, 8, 16)

    def attend() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    assert protocol.attention(attend, None) == "fused"
    with sdpa_kernel(SDPBackend.MATH):
        assert protocol.attention(attend, None) == "eager"
    assert protocol.attention(x.sum, None) == "none"


def test_every_sample_waits_for_the_device() -> None:
    """A GPU's call returns before the work is done; work queued before is no sample's."""
    clock, queued = FakeClock(), [500]

    def wait() -> None:
        clock.now += sum(queued)
        queued.clear()

    samples = timed(lambda: queued.append(7), wait, 3, lambda done: None, clock)
    assert list(samples) == [7, 7, 7]


def test_neighbours_that_remain() -> None:
    vectors = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    assert protocol.recall(vectors.copy(), vectors.copy()) == 1
    assert 0 < (protocol.recall(vectors[::-1].copy(), vectors.copy()) or 0) < 0.6
    assert protocol.recall(vectors[:10].copy(), vectors[:10].copy()) is None
    vectors[0, 0] = np.nan
    assert protocol.recall(vectors, vectors) is None
