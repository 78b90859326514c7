"""The network as an ONNX graph of fixed shape, in FP32 or FP16 or quantized, cached on the disk.

Written against transformers' interface: any image model whose output has pooled vectors. A graph is
exported once and cached under the digest of all it depends on:

    <cache>/<digest>/model.onnx    fixed batch, fixed input size
                     about.json    seconds it took, its operators, sha256 of the model

A folder is written under a temporary name and renamed, so that it is complete or absent.
"""

import copy
import hashlib
import json
import logging
import os
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import onnx
import onnxruntime
import torch

from harness.digests import digest_of
from harness.runtimes import NetworkRequest
from harness.runtimes.pytorch import TORCH_DTYPES
from wallclock.errors import Unavailable, first_line
from wallclock.files import pretty_json, sha256_file, write_bytes, write_text

INPUT, OUTPUT = "pixel_values", "pooled"

#: Operators that mean that work which is the same for every batch was left in the graph.
_UNWANTED = ("Resize", "Upsample", "Shape")

#: The first opset with an operator for attention, which runtimes have fused kernels for.
_ATTENTION_OPSET = 23

_LIBRARIES = ("torch", "transformers", "onnxscript", "onnx")


@dataclass(frozen=True)
class Exported:
    """A graph on disk, the seconds it took to make, and its operators by name."""

    path: Path
    export_s: float
    operators: dict[str, int]


def export_graph(request: NetworkRequest) -> Exported:
    """The network as a graph, from the cache or made now. Raises `Unavailable`: it cannot be."""
    folder = request.cache / _key(request)
    model = folder / "model.onnx"
    # Missing or damaged: made again.
    with suppress(OSError, ValueError, KeyError):
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        if sha256_file(model) == about["sha256"]:
            return Exported(model, about["export_s"], about["operators"])
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        export_s, operators = _write(request, Path(temporary) / "model.onnx")
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(temporary, folder)
    return Exported(model, export_s, operators)


def _key(request: NetworkRequest) -> str:
    images = request.calibration if request.dtype == "int8-static" else None
    versions = {name: metadata.version(name) for name in _LIBRARIES}
    identity = {
        "weights": request.weights_digest,
        "images": list(request.shape),
        "dtype": request.dtype,
        "opset": request.opset,
        "calibration": "" if images is None else hashlib.sha256(images.tobytes()).hexdigest(),
        "versions": versions | {"onnxruntime": onnxruntime.__version__},
    }
    return digest_of(identity)[:16]


def _write(request: NetworkRequest, model: Path) -> tuple[float, dict[str, int]]:
    """Export, or quantize the FP32 graph; the seconds of a quantized graph include both."""
    export_s = 0.0
    quantize = _QUANTIZERS.get(request.dtype)
    if quantize:
        floats = export_graph(replace(request, dtype="fp32"))
        export_s = floats.export_s
    began = perf_counter()
    with _quiet():
        if quantize:
            quantize(request, floats.path, model)
        else:
            _export_floats(request, model)
    export_s += perf_counter() - began
    nodes = onnx.load(model, load_external_data=False).graph.node
    operators = dict(sorted(Counter(node.op_type for node in nodes).items()))
    unwanted = ", ".join(name for name in _UNWANTED if name in operators)
    if unwanted:
        raise Unavailable(
            f"the exported graph still holds {unwanted}: shapes were meant to be fixed"
        )
    about = {"export_s": export_s, "operators": operators, "sha256": sha256_file(model)}
    write_text(model.with_name("about.json"), pretty_json(about))
    return export_s, operators


def _export_floats(request: NetworkRequest, path: Path) -> None:
    dtype = TORCH_DTYPES[request.dtype]
    network = _prepared(request)
    try:
        with _without_empty_masks(network.config):
            program = torch.onnx.export(
                _Pooled(network).eval().to(dtype),
                (torch.zeros(request.shape, dtype=dtype),),
                dynamo=True,
                opset_version=request.opset,
                input_names=[INPUT],
                output_names=[OUTPUT],
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        kind = network.config.model_type
        raise Unavailable(
            f"opset {request.opset} cannot hold a {kind}: {first_line(error)}"
        ) from error
    assert program is not None
    write_bytes(path, program.model_proto.SerializeToString())


def _dynamic(request: NetworkRequest, floats: Path, path: Path) -> None:
    """int8 weights of every matrix product; the range of activations is found in every batch."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        floats, path, op_types_to_quantize=["MatMul"], per_channel=True, weight_type=QuantType.QInt8
    )


def _static(request: NetworkRequest, floats: Path, path: Path) -> None:
    """int8 weights; the range of activations is that over the calibration images (QDQ, MinMax)."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    images = request.calibration
    n = request.shape[0]
    if images is None:
        raise Unavailable(
            "dtype=int8-static needs images to calibrate with; experiment onnx has some"
        )
    # The graph takes whole batches: what is left over starts again.
    batches = iter(
        [images.take(range(at, at + n), 0, mode="wrap") for at in range(0, len(images), n)]
    )

    class Batches(CalibrationDataReader):  # type: ignore[misc]  # untyped in onnxruntime
        def get_next(self) -> Any:
            batch = next(batches, None)
            return None if batch is None else {INPUT: batch}

    quantize_static(
        floats,
        path,
        Batches(),
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )


def _weights(request: NetworkRequest, floats: Path, path: Path) -> None:
    """int8 weights in blocks of 32, each with its scale; activations and products stay FP32."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(floats), bits=8, block_size=32, is_symmetric=True)
    quantizer.process()
    write_bytes(path, quantizer.model.model.SerializeToString())


_QUANTIZERS: dict[str, Callable[[NetworkRequest, Path, Path], None]] = {
    "int8": _dynamic,
    "int8-static": _static,
    "int8-weights": _weights,
}


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters' deprecation warnings and progress messages."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(logging.NOTSET)


def _prepared(request: NetworkRequest) -> Any:
    """A copy of the network, on the host, whose position embeddings fit the input.

    DINOv2's are stored for 518 px and interpolated in every pass; done once before the export, no
    Resize is left in the graph. They depend on the input's size alone.
    """
    network = copy.deepcopy(request.network).cpu().float()
    # One operator where the opset has one; else the plain products, without the guard against
    # fully masked rows that torch's decomposition adds. A network without attention refuses.
    with suppress(ValueError):
        network.set_attn_implementation("sdpa" if request.opset >= _ATTENTION_OPSET else "eager")
    fitted: dict[Any, Any] = {}

    def record_calls(module: Any) -> Callable[..., Any]:
        interpolate = module.interpolate_pos_encoding

        def call(*arguments: Any, **options: Any) -> Any:
            fitted[module] = interpolate(*arguments, **options)
            return fitted[module]

        return call

    interpolating = [m for m in network.modules() if hasattr(m, "interpolate_pos_encoding")]
    for module in interpolating:
        module.interpolate_pos_encoding = record_calls(module)
    with torch.no_grad():
        network(pixel_values=torch.zeros(1, *request.shape[1:]))
    for module in interpolating:
        del module.interpolate_pos_encoding
    for module, embeddings in fitted.items():
        module.register_buffer("_fitted", embeddings.clone(), persistent=False)
        module.interpolate_pos_encoding = partial(_fitted, module)
    return network


def _fitted(module: Any, *arguments: Any, **options: Any) -> Any:
    return module._fitted


@contextmanager
def _without_empty_masks(config: Any) -> Iterator[None]:
    """Let models build no attention mask where it would mask nothing.

    Under export transformers builds one even so; it would cost the graph an addition a layer.
    """
    from transformers import masking_utils

    masks = masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
    name = config._attn_implementation
    if name not in masks:
        yield
        return
    build = masks[name]

    def mask(*arguments: Any, mask_function: Any, attention_mask: Any, **options: Any) -> Any:
        if attention_mask is None and mask_function is masking_utils.bidirectional_mask_function:
            return None
        return build(
            *arguments, mask_function=mask_function, attention_mask=attention_mask, **options
        )

    masks[name] = mask
    try:
        yield
    finally:
        masks.pop(name)  # this instance's: the library's own shows again


class _Pooled(torch.nn.Module):
    """A network's forward pass, pooled vectors only."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """(n, 3, h, w) → (n, dim)."""
        pooled: torch.Tensor = self.network(pixel_values=pixel_values).pooler_output
        return pooled
