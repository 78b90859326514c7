"""Runtimes of the forward pass: the product's, ONNX Runtime, TensorRT, compiled PyTorch; pruning.

There is no fallback: what cannot run as configured raises, before anything runs. Importing this
package imports no library of theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from wallclock import machine
from wallclock.errors import Unavailable, UserError, check_name
from wallclock.preprocess import Preprocess
from wallclock.recipe import COMPILERS, DTYPES, RUNTIMES, ModelSpec, Recipe
from wallclock.stages import forward
from wallclock.stages.forward import Network, Step
from wallclock.stages.forward.networks import digest_of, load_network

#: Runtime → the module whose `build` takes a `NetworkRequest`.
MODULES = {
    "pytorch": f"{__name__}.pytorch",
    "onnxruntime": f"{__name__}.ort",
    "tensorrt": f"{__name__}.ort",
}


@dataclass(frozen=True)
class NetworkRequest:
    """A network and how to run it.

    `network`: FP32, in host memory, in evaluation mode; a builder may change and move it. `shape`:
    (n, 3, h, w) of a batch. `normalize`: as in `forward.make`. `cache`: where exported graphs are
    kept. `calibration`: normalized images (n, 3, h, w) in host memory, for dtype=int8-static.
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
    sample: Callable[[], Any] | None = None,
    *,
    cache: Path = Path(),
) -> Network:
    """As `forward.make`, by any runtime; `cache`: where exported graphs are kept."""
    if model.weights == "none":
        return forward.make(model, recipe, normalize)
    if recipe.runtime == "openvino":
        check(recipe)
        return forward.make(model, recipe, normalize, sample)
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
        import_module(f"{__name__}.pruning").prune(network, model.pruned)
    how = recipe.runtime, recipe.dtype, recipe.device, recipe.compile
    return NetworkRequest(network, digest_of(network), shape, *how, normalize, cache)


def build(request: NetworkRequest) -> Network:
    """Export, compile or capture the network for batches of any size; raises as `make` does."""
    network: Network = import_module(MODULES[request.runtime]).build(request)
    return network
