"""Stage `forward`: a batch on the device to pooled vectors, by PyTorch, OpenVINO and others.

There is no fallback: what cannot run as configured raises, before anything runs.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from wallclock import machine
from wallclock.errors import Unavailable, UserError, check_name
from wallclock.preprocess import Preprocess
from wallclock.recipe import COMPILERS, DTYPES, RUNTIMES, ModelSpec, Recipe
from wallclock.stages.forward.networks import digest_of, load_network

#: A batch on the device to its vectors there.
Step: TypeAlias = Callable[[Any], Any]

#: Runtime, compile or pruned → the module for it, imported when it is needed.
_MODULES = {"pytorch": f"{__name__}.pytorch", "openvino": f"{__name__}.openvino"}


def register(runtime: str, module: str) -> None:
    """Let the module's `build`, which takes a `NetworkRequest`, run networks of this runtime.

    Of "compile": its `compiled` takes a step, a batch and how to compile. Of "pruned": its `prune`
    takes a network and the share of the hidden units that it removes.
    """
    _MODULES[runtime] = module


def registered(name: str) -> Any:
    """The module of a runtime, or of compile or pruned. Raises Unavailable: there is none."""
    if name not in _MODULES:
        raise Unavailable(f"{name} is the benchmark suite's; set runtime=pytorch, compile=none")
    return import_module(_MODULES[name])


@dataclass(frozen=True)
class NetworkRequest:
    """A network and how to run it.

    `network`: FP32, in host memory, in evaluation mode; a builder may change and move it. `shape`:
    (n, 3, h, w) of a batch. `normalize`: uint8 (n, h, w, 3) → float32 (n, 3, h, w), on the device;
    None: batches are normalized already. `cache`: where exported graphs are kept. `calibration`:
    normalized images (n, 3, h, w) in host memory, for dtype=int8-static.
    """

    network: Any
    weights_digest: str
    shape: tuple[int, int, int, int]
    runtime: str
    dtype: str
    device: str
    compile: str
    normalize: Step | None
    cache: Path
    opset: int = 23
    calibration: Any = None


@dataclass(frozen=True)
class Network:
    """A network that is ready to run. All labels are read back from the object that runs.

    `run` takes a batch on the device (n, 3, h, w), or uint8 (n, h, w, 3) where it normalizes, to
    (n, dim) vectors there; on a GPU it may return before the device is done. `provider`: library,
    device and precision. `values`: for the record, as `compile_s`, seconds of compilation, capture
    or session creation (None where there is none).
    """

    run: Step
    weights_digest: str
    runtime: str = "none"
    provider: str = "none"
    dtype: str = "none"
    compile: str = "none"
    values: Mapping[str, Any] = field(default_factory=lambda: {"compile_s": None})


def check(recipe: Recipe, key: str = "recipe") -> None:
    """Raise `UserError` for an unknown name or a combination that no machine can run."""
    check_name(recipe.runtime, RUNTIMES, f"{key}.runtime")
    check_name(recipe.compile, COMPILERS, f"{key}.compile")
    check_name(recipe.dtype, DTYPES[recipe.runtime], f"{key}.dtype of runtime={recipe.runtime}")
    if recipe.compile != "none" and recipe.runtime != "pytorch":
        raise UserError(f"{key}.compile={recipe.compile}: needs runtime=pytorch")
    if recipe.runtime == "openvino":
        for name, needed in (("device", "cpu"), ("normalize_on", "device")):
            if getattr(recipe, name) != needed:
                raise UserError(f"{key}.runtime=openvino: needs {name}={needed}")


def make(
    model: ModelSpec,
    recipe: Recipe,
    normalize: Step | None,
    cache: Path,
    sample: Callable[[], Any] | None = None,
) -> Network:
    """Load a model and make it ready to run as the recipe says; arguments as in `NetworkRequest`.

    `sample`: as `openvino.make` takes it. Raises `UserError` for weights that cannot be loaded;
    `Unavailable` where a library, provider or device is missing.
    """
    if model.weights == "none":
        return _mock(model)
    if recipe.runtime == "openvino":
        check(recipe)
        network: Network = registered("openvino").make(model, recipe, sample)
        return network
    return build(prepare(model, recipe, normalize, cache))


def prepare(
    model: ModelSpec, recipe: Recipe, normalize: Step | None, cache: Path
) -> NetworkRequest:
    """Load a model's network; raises as `make` does."""
    check(recipe)
    # ONNX Runtime's CPU provider would convert FP16 to FP32 and back around every operator.
    for setting, needs_gpu in (
        ("runtime=tensorrt", recipe.runtime == "tensorrt"),
        ("compile=cuda_graphs", recipe.compile == "cuda_graphs"),
        ("dtype=fp16", (recipe.runtime, recipe.dtype) == ("onnxruntime", "fp16")),
    ):
        if needs_gpu and recipe.device != "cuda":
            raise Unavailable(f"{setting} needs a CUDA GPU, this run is on device={recipe.device}")
    if recipe.device == "cuda":
        machine.require_cuda()
    height, width = Preprocess.parse(recipe.preprocess, model.input_px).canvas
    network, shape = load_network(model, (height, width)), (recipe.batch_size, 3, height, width)
    if model.pruned:
        registered("pruned").prune(network, model.pruned)
    how = recipe.runtime, recipe.dtype, recipe.device, recipe.compile
    return NetworkRequest(network, digest_of(network), shape, *how, normalize, cache)


def build(request: NetworkRequest) -> Network:
    """Export, compile or capture the network for batches of any size; raises as `make` does."""
    network: Network = registered(request.runtime).build(request)
    return network


def _mock(model: ModelSpec) -> Network:
    """A model without a network, which takes as long as `service_ms` says."""

    def run(batch: Any) -> Any:
        service_ms = model.service_ms + model.service_ms_per_image * len(batch)
        if service_ms:
            time.sleep(service_ms / 1e3)
        # Pixels of the middle, so that a vector tells its image; the edge of a product's is white.
        flat = batch.reshape(len(batch), -1)
        start = max(0, flat.shape[1] - model.dim) // 2
        return flat[:, start : start + model.dim]

    return Network(run, weights_digest="none")
