"""The forward stage: every runtime computes the model's vectors, and says what really ran."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch._dynamo.exc import TorchDynamoException
from transformers import AutoConfig, AutoModel

from harness import runtimes
from harness.runtimes import NetworkRequest, export, ort
from wallclock import checkpoint
from wallclock.errors import Unavailable, UserError
from wallclock.recipe import DTYPES, IMAGENET, RUNTIMES, ModelSpec, Recipe
from wallclock.stages import normalize
from wallclock.stages.forward import Network, networks, pooling
from wallclock.summary import cosine

#: DINOv2's shape with narrow layers, and two of them: seconds less.
MODEL = ModelSpec("tiny", dim=48, input_px=28)
RECIPE = Recipe("test", batch_size=3)
HAS_GPU = torch.cuda.is_available()


@pytest.fixture(scope="module", autouse=True)
def _few_layers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "_LAYERS", 2)
        yield


@pytest.fixture(scope="module")
def images() -> Any:
    source = np.random.default_rng(0)
    return torch.from_numpy(source.normal(size=(3, 3, 28, 28)).astype(np.float32))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture(scope="module")
def make(cache: Path) -> Any:
    def build(normalize: Any = None, **changes: Any) -> Network:
        return runtimes.make(MODEL, replace(RECIPE, **changes), normalize, cache=cache)

    return build


@pytest.fixture
def request_for(cache: Path) -> Any:
    def prepare(**changes: Any) -> NetworkRequest:
        return replace(runtimes.prepare(MODEL, RECIPE, None, cache), **changes)

    return prepare


@pytest.fixture(scope="module")
def reference(make: Any, images: Any) -> Any:
    return make().run(images)


def error_of(vectors: Any, reference: Any) -> float:
    """The largest difference, over the reference's largest component."""
    assert cosine(vectors.float().cpu().numpy(), reference.numpy()).min() > 0.98
    return float((vectors.float().cpu() - reference).abs().max() / reference.abs().max())


@pytest.mark.parametrize(
    ("runtime", "dtype", "provider", "error"),
    [
        ("pytorch", "fp32", "torch cpu float32", 0.0),
        ("pytorch", "fp16", "torch cpu float16", 0.02),
        ("pytorch", "bf16", "torch cpu bfloat16", 0.1),
        ("onnxruntime", "fp32", "CPUExecutionProvider", 1e-4),
        ("onnxruntime", "int8", "CPUExecutionProvider", 0.2),
    ],
)
def test_runtime_end_to_end(
    make: Any, images: Any, reference: Any, runtime: str, dtype: str, provider: str, error: float
) -> None:
    network = make(runtime=runtime, dtype=dtype)
    vectors = network.run(images)
    assert error_of(vectors, reference) <= error
    assert (network.runtime, network.dtype, network.provider) == (runtime, dtype, provider)
    assert network.compile == "none"
    if dtype in ("bf16", "int8"):
        assert error_of(vectors, reference) > 0, "rounded so coarsely and yet equal: FP32 ran"
    # INT8 scales activations by the batch's own range; processors without VNNI saturate besides.
    atol = error if dtype == "int8" else 0.05
    for n in (1, 2):
        torch.testing.assert_close(network.run(images[:n]), vectors[:n], rtol=0.02, atol=atol)


@pytest.mark.parametrize("runtime", ["pytorch", "onnxruntime"])
def test_normalize_on_device(make: Any, images: Any, runtime: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 28, 28, 3), np.uint8)
    host = np.stack([normalize.make(*IMAGENET)(image) for image in pixels])
    on_device = normalize.on_device(*IMAGENET, "cpu")
    ours = make(on_device, runtime=runtime).run(torch.from_numpy(pixels))
    theirs = make(runtime=runtime).run(torch.from_numpy(host))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runtime": "pytroch"}, "no recipe.runtime is called 'pytroch'; did you mean pytorch"),
        ({"dtype": "fp23"}, "no recipe.dtype of runtime=pytorch is called 'fp23'; did you mean fp"),
        ({"compile": "compiled"}, "did you mean compile"),
        ({"dtype": "int8"}, "dtype of runtime=pytorch is called 'int8'; valid: bf16, fp16, fp32"),
        ({"runtime": "onnxruntime", "dtype": "bf16"}, "dtype of runtime=onnxruntime is called"),
        ({"runtime": "tensorrt"}, "dtype of runtime=tensorrt is called 'fp32'"),
        ({"runtime": "onnxruntime", "compile": "compile"}, "=compile: needs runtime=pytorch"),
    ],
)
def test_check_refuses_in_one_line(changes: dict[str, Any], message: str) -> None:
    assert {*runtimes.MODULES, "openvino"} == {*RUNTIMES}
    assert tuple(DTYPES) == RUNTIMES
    with pytest.raises(UserError, match=message):
        runtimes.check(replace(RECIPE, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"runtime": "tensorrt", "dtype": "fp16"},
        {"runtime": "onnxruntime", "dtype": "fp16"},
        {"compile": "cuda_graphs"},
        {"device": "cuda"},
    ],
)
def test_gpu_only_choices_are_unavailable(make: Any, changes: dict[str, str]) -> None:
    if changes.get("device") == "cuda" and HAS_GPU:
        pytest.skip("there is a GPU")
    with pytest.raises(Unavailable, match="CUDA"):
        make(**changes)


class TestPruned:
    def test_layers_are_narrower(self) -> None:
        models = [replace(MODEL, pruned=share) for share in (0.0, 0.5)]
        full, half = (runtimes.prepare(model, RECIPE, None, Path()).network for model in models)
        for before, after in zip(full.encoder.layer, half.encoder.layer, strict=True):
            first, norms = after.mlp.fc1, before.mlp.fc1.weight.norm(dim=1)
            largest = norms.argsort(descending=True)[:96].sort().values
            assert (first.out_features, after.mlp.fc2.weight.shape) == (96, (48, 96))
            assert torch.equal(first.weight, before.mlp.fc1.weight[largest])
            assert torch.equal(first.bias, before.mlp.fc1.bias[largest])
            assert torch.equal(after.mlp.fc2.weight, before.mlp.fc2.weight[:, largest])
        assert half(pixel_values=torch.zeros(1, 3, 28, 28)).pooler_output.shape == (1, 48)


def test_fp32_means_fp32(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN's convolution, the patch embedding, would round to TF32 on newer GPUs."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    make()
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32) == (False,) * 2


def test_mock_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors identify their images; a batch takes its service time."""
    slept: list[float] = []
    monkeypatch.setattr("wallclock.stages.forward.time.sleep", slept.append)
    images = np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32)
    model = ModelSpec("null", "none", dim=16, service_ms=30, service_ms_per_image=5)
    network = runtimes.make(model, replace(RECIPE, compile="compile"), None)
    np.testing.assert_array_equal(network.run(images), images.reshape(4, -1)[:, 88:104])
    assert slept == [0.05]
    labels = (network.runtime, network.dtype, network.compile, network.weights_digest)
    assert set(labels) == {"none"}


class TestPyTorch:
    def test_compiler_is_missing(self, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(batch: Any) -> Any:
            raise TorchDynamoException("\nNo working C++ compiler found\nSet TORCHDYNAMO_VERBOSE=1")

        monkeypatch.setattr(torch, "compile", lambda step, dynamic: fail)
        with pytest.raises(Unavailable, match=r"failed: No working C\+\+ compiler found$"):
            make(compile="compile")

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler meets its own
    def test_compiled_vectors(self, make: Any, images: Any, reference: Any) -> None:
        network = make(compile="compile")
        assert network.compile == "compile"
        assert network.values["compile_s"] > 1
        for n in (3, 2):
            assert error_of(network.run(images[:n]), reference[:n]) < 1e-4

    @pytest.mark.cuda
    # torch's compiler meets its own deprecations, and warns of what it could do faster.
    @pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
    @pytest.mark.parametrize(("dtype", "error"), [("fp32", 1e-3), ("fp16", 0.03)])
    @pytest.mark.parametrize("how", ["none", "compile", "cuda_graphs", "onnxruntime"])
    def test_on_a_gpu(
        self, make: Any, images: Any, reference: Any, how: str, dtype: str, error: float
    ) -> None:
        if how == "onnxruntime" and ort.CUDA not in onnxruntime.get_available_providers():
            pytest.skip("this ONNX Runtime has no provider for CUDA")
        choice = {"runtime": how} if how == "onnxruntime" else {"compile": how}
        network = make(device="cuda", dtype=dtype, **choice)
        for n in (3, 2, 3):
            assert error_of(network.run(images[:n].cuda()), reference[:n]) < error
        assert network.dtype == dtype
        assert how in (network.compile, network.runtime)


class TestExport:
    def test_cached_until_damaged(self, request_for: Any) -> None:
        first = export.export_graph(request_for(dtype="int8"))
        written = first.path.stat().st_mtime_ns
        again = export.export_graph(request_for(dtype="int8"))
        assert (again, again.path.stat().st_mtime_ns) == (first, written)
        first.path.write_bytes(first.path.read_bytes()[:-1])
        repaired = export.export_graph(request_for(dtype="int8"))
        assert repaired.path == first.path
        assert repaired.path.stat().st_mtime_ns != written
        ort.open_session(repaired.path, [(ort.CPU, {})], 1)

    @pytest.mark.slow
    @pytest.mark.parametrize("opset", [23, 17])
    @pytest.mark.parametrize("kind", ["vit", "clip_vision_model", "convnext", "resnet"])
    def test_any_image_model(
        self, request_for: Any, images: Any, tmp_path: Path, kind: str, opset: int
    ) -> None:
        torch.manual_seed(0)
        narrow = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 1}
        narrow |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
        flat = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "embedding_size": 8}
        sizes = flat if kind in ("convnext", "resnet") else narrow
        from_config: Any = AutoModel.from_config  # untyped in transformers
        module = from_config(AutoConfig.for_model(kind, **sizes)).eval()
        model = replace(MODEL, dim=checkpoint.width(module.config.to_dict()))
        network = pooling.pooled(module, model, missing=(), canvas=(28, 28))
        request = request_for(network=network, weights_digest=kind, cache=tmp_path, opset=opset)
        built = runtimes.build(replace(request, runtime="onnxruntime"))
        with torch.inference_mode():
            expected = network(pixel_values=images).pooler_output
        assert error_of(built.run(images), expected) < 1e-4
        assert ("Attention" in built.values["operators"]) == (opset == 23 and sizes is narrow)
        assert "Where" not in built.values["operators"], "a mask that masks nothing"


@pytest.mark.skipif(HAS_GPU, reason="the provider loads here")
@pytest.mark.parametrize("provider", [ort.CUDA, ort.TENSORRT])
def test_missing_library_is_named(request_for: Any, provider: str, capfd: Any) -> None:
    graph = export.export_graph(request_for())
    message = rf"{provider} did not load: lib\S+: cannot open shared object file"
    with pytest.raises(Unavailable, match=message):
        ort.open_session(graph.path, [(provider, {})], 1)


def test_placement_decides() -> None:
    check = ort.check_placement
    assert check({ort.CUDA: 400}, ort.CUDA) == ort.CUDA
    assert check({ort.CUDA: 3, ort.TENSORRT: 1}, ort.TENSORRT) == f"{ort.TENSORRT} + {ort.CUDA}"
    assert check({ort.CPU: 7}, ort.CPU) == ort.CPU
    for nodes, wanted, message in (
        ({ort.CUDA: 398, ort.CPU: 2}, ort.CUDA, "left 2 nodes to the CPU"),
        ({ort.CUDA: 400}, ort.TENSORRT, f"took no part of the graph; it went to {ort.CUDA}"),
        ({}, ort.CUDA, "went to no provider"),
    ):
        with pytest.raises(Unavailable, match=message):
            check(nodes, wanted)


def test_placement_by_the_profile_of_a_run(
    request_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with ONNX Runtime before 1.24, such as the paper's."""
    monkeypatch.setattr(ort, "_TELLS", "not_there_yet")
    request = request_for(runtime="onnxruntime")
    nodes = runtimes.build(request).values["nodes"]
    assert nodes.keys() == {ort.CPU}
    assert nodes[ort.CPU] > 10
    assert not list(request.cache.rglob("*profile*")), "it is not left there"
