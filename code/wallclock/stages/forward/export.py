"""A network as an ONNX graph: exported once, cached under the digest of all that it depends on.

    <cache>/<digest>/model.onnx    fixed batch, fixed input size
                     about.json    seconds it took, its operators, sha256 of the model

A folder is written under a temporary name and renamed, so that it is complete or absent.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import onnx
import torch

from wallclock.errors import Unavailable
from wallclock.files import digest_of, pretty_json, sha256_file, write_bytes, write_text
from wallclock.stages.forward import Request
from wallclock.stages.forward.pytorch import TORCH_DTYPES

INPUT, OUTPUT = "pixel_values", "pooled"

#: Operators that mean that work which is the same for every batch was left in the graph.
_UNWANTED = ("Resize", "Upsample", "Shape")

#: The first opset with an operator for attention, which runtimes have fused kernels for.
_ATTENTION_OPSET = 23

_LIBRARIES = ("torch", "transformers", "onnxscript", "onnx", "onnxruntime-gpu")


@dataclass(frozen=True)
class Exported:
    """A graph on disk, the seconds it took to make, and its operators by name."""

    path: Path
    export_s: float
    operators: dict[str, int]


def exported(request: Request) -> Exported:
    """The request's network as a graph, from the cache or exported now.

    Raises:
        Unavailable: the network is not a DINOv2.
        UserError: the disk is full.
    """
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


def _key(request: Request) -> str:
    identity = {
        "weights": request.weights_digest,
        "images": list(request.shape),
        "dtype": request.dtype,
        "opset": request.opset,
        "versions": {name: metadata.version(name) for name in _LIBRARIES},
    }
    return digest_of(identity)[:16]


def _write(request: Request, model: Path) -> tuple[float, dict[str, int]]:
    """Export, or quantize the FP32 graph; the seconds of an int8 graph include both."""
    export_s = 0.0
    if request.dtype == "int8":
        floats = exported(replace(request, dtype="fp32"))
        export_s = floats.export_s
    began = perf_counter()
    with _quiet():
        if request.dtype == "int8":
            _quantize(floats.path, model)
        else:
            _export(request, model)
    export_s += perf_counter() - began
    nodes = onnx.load(model, load_external_data=False).graph.node
    operators = dict(sorted(Counter(node.op_type for node in nodes).items()))
    if unwanted := ", ".join(name for name in _UNWANTED if name in operators):
        raise RuntimeError(
            f"the exported graph still holds {unwanted}: shapes were meant to be fixed"
        )
    about = {"export_s": export_s, "operators": operators, "sha256": sha256_file(model)}
    write_text(model.with_name("about.json"), pretty_json(about))
    return export_s, operators


def _export(request: Request, path: Path) -> None:
    dtype = TORCH_DTYPES[request.dtype]
    program = torch.onnx.export(
        _Pooled(_prepared(request)).eval().to(dtype),
        (torch.zeros(request.shape, dtype=dtype),),
        dynamo=True,
        opset_version=request.opset,
        input_names=[INPUT],
        output_names=[OUTPUT],
        verbose=False,
    )
    assert program is not None
    write_bytes(path, program.model_proto.SerializeToString())


def _quantize(floats: Path, path: Path) -> None:
    """Dynamic quantization: int8 weights of every matrix product; activations per batch."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        floats, path, op_types_to_quantize=["MatMul"], per_channel=True, weight_type=QuantType.QInt8
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters' deprecation warnings and progress messages."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _prepared(request: Request) -> Any:
    """A copy of the network whose position embeddings fit the input, on the host.

    They are stored for 518 px and interpolated in every pass; done once before the export, no
    Resize is left in the graph.
    """
    kind = request.network.config.model_type
    if kind != "dinov2":
        raise Unavailable(f"runtime={request.runtime} exports DINOv2 only, the model is a {kind}")
    network = copy.deepcopy(request.network).cpu().float()
    # One operator where the opset has one; else the plain products, without the guard against
    # fully masked rows that torch's decomposition adds.
    network.set_attn_implementation("sdpa" if request.opset >= _ATTENTION_OPSET else "eager")
    embeddings, height, width = network.embeddings, *request.shape[2:]
    patch = network.config.patch_size
    tokens = torch.zeros(1, (height // patch) * (width // patch) + 1, network.config.hidden_size)
    with torch.no_grad():
        fitted = embeddings.interpolate_pos_encoding(tokens, height, width).clone()
    embeddings.position_embeddings = torch.nn.Parameter(fitted, requires_grad=False)
    return network


class _Pooled(torch.nn.Module):
    """Dinov2Model's forward pass, pooled vector only.

    Written out because under export the model adds an attention mask that masks nothing, which
    would cost the graph alone an addition per layer.
    """

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """(n, 3, h, w) → (n, dim)."""
        tokens = self.network.embeddings(pixel_values)
        encoded = self.network.encoder(tokens, attention_mask=None).last_hidden_state
        pooled: torch.Tensor = self.network.layernorm(encoded)[:, 0, :]
        return pooled
