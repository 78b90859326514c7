"""ONNX Runtime by execution provider (CUDA, TensorRT, CPU), on a graph exported from PyTorch.

Input and output stay on the device. ONNX Runtime moves what a provider cannot run to the CPU, and
runs all of it there when the provider does not load. Here that is forbidden, and the placement of
nodes is read back. A graph is exported once and cached under the digest of all it depends on:

    <cache>/<digest>/model.onnx    fixed batch, fixed input size
                     about.json    seconds it took, its operators, sha256 of the model

A folder is written under a temporary name and renamed, so that it is complete or absent.
"""

import copy
import ctypes
import json
import logging
import os
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module, metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import onnx
import onnxruntime
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as state

from wallclock.errors import Unavailable
from wallclock.files import digest_of, pretty_json, sha256_file, write_bytes, write_text
from wallclock.stages.forward import Network, Request
from wallclock.stages.forward.pytorch import TORCH_DTYPES, fixed_shape

INPUT, OUTPUT = "pixel_values", "pooled"

#: Operators that mean that work which is the same for every batch was left in the graph.
_UNWANTED = ("Resize", "Upsample", "Shape")

#: The first opset with an operator for attention, which runtimes have fused kernels for.
_ATTENTION_OPSET = 23

_LIBRARIES = ("torch", "transformers", "onnxscript", "onnx", "onnxruntime-gpu")

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"

Provider = tuple[str, dict[str, str]]

#: TF32 would compute FP32 products with ten bits of mantissa; PyTorch has it off, so has this.
_CUDA: Provider = (CUDA, {"device_id": "0", "use_tf32": "0"})
#: The CUDA provider takes the nodes that TensorRT leaves. The engine is built, never cached.
_TENSORRT: Provider = (TENSORRT, {"device_id": "0", "trt_fp16_enable": "1"})

#: What a session raises; the library's own exceptions share no base class below Exception.
_NAMES = ("Fail", "EPFail", "RuntimeException", "NotImplemented", "InvalidGraph")
_ERRORS = (RuntimeError, *(getattr(state, name) for name in _NAMES))

#: A session's input type → its dtype.
_DTYPES = {"tensor(float)": "fp32", "tensor(float16)": "fp16"}


def build(request: Request) -> Network:
    """Export the network and open a session on it."""
    providers: list[Provider] = [(CPU, {})]
    if request.device == "cuda":
        preload: Any = onnxruntime.preload_dlls  # untyped in onnxruntime
        preload()  # the CUDA and cuDNN libraries that torch's wheels brought
        providers = [_CUDA]
    if request.runtime == "tensorrt":
        providers.insert(0, _TENSORRT)
        with suppress(ImportError):
            import_module("tensorrt")  # its wheel brings libnvinfer and loads it
    graph = exported(request)
    began = perf_counter()
    session, provider = open_session(graph.path, providers, torch.get_num_threads())
    seconds = {"compile_s": perf_counter() - began, "export_s": graph.export_s}
    session_dtype = _DTYPES[session.get_inputs()[0].type]
    run = fixed_shape(_Bound(session, session_dtype, request.device), request.shape[0])
    normalize = request.normalize
    return Network(
        run if normalize is None else lambda batch: run(normalize(batch)),
        request.weights_digest,
        runtime="tensorrt" if provider.startswith(TENSORRT) else "onnxruntime",
        provider=provider,
        dtype="int8" if "MatMulInteger" in graph.operators else session_dtype,
        values={**seconds, "operators": graph.operators, "nodes": _placement(session)},
    )


def open_session(model: Path, providers: Sequence[Provider], threads: int) -> tuple[Any, str]:
    """A session on the first of `providers`, and the providers that its nodes really are on.

    Raises `Unavailable` where the first does not load, or as `check_placement` does.
    """
    wanted = providers[0][0]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what matters is in the exception, or read back below
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if wanted != CPU:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    open_: Any = onnxruntime.InferenceSession
    try:
        session = open_(model, options, providers=list(providers), enable_fallback=0)
    except _ERRORS as error:
        if wanted == CPU:
            raise
        raise _explained(error, wanted) from error
    return session, check_placement(_placement(session), wanted)


def check_placement(nodes: Mapping[str, int], wanted: str) -> str:
    """Nodes by provider → the providers' names, the wanted one first.

    Raises `Unavailable` where the wanted one has no nodes, or the CPU has some unasked.
    """
    if not nodes.get(wanted):
        others = ", ".join(nodes) or "no provider"
        raise Unavailable(f"{wanted} took no part of the graph; it went to {others}")
    if wanted != CPU and nodes.get(CPU):
        raise Unavailable(f"{wanted} left {nodes[CPU]} nodes to the CPU: not a time of its own")
    return " + ".join(sorted(nodes, key=lambda name: (name != wanted, name)))


def _placement(session: Any) -> dict[str, int]:
    """Graph nodes by the provider they were assigned to; a provider without any is not listed."""
    nodes: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        nodes[part.ep_name] += len(part.get_nodes())
    unused = set(nodes) - set(session.get_providers())
    assert not unused, f"nodes on providers that the session does not list: {unused}"
    return dict(nodes)


class _Bound:
    """A session whose input and output are bound by address to tensors on the device."""

    def __init__(self, session: Any, dtype: str, device: str) -> None:
        self._session, self._device = session, device
        self._dtype = TORCH_DTYPES[dtype]
        self._element: Any = torch.empty(0, dtype=self._dtype).numpy().dtype.type
        self._shape = session.get_outputs()[0].shape
        self._binding = session.io_binding()

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        images = batch.to(self._dtype).contiguous()
        vectors = torch.empty(self._shape, dtype=self._dtype, device=self._device)
        for bind, name, tensor in (
            (self._binding.bind_input, INPUT, images),
            (self._binding.bind_output, OUTPUT, vectors),
        ):
            bind(name, self._device, 0, self._element, list(tensor.shape), tensor.data_ptr())
        if self._device == "cuda":
            # The session has a stream of its own, and waits for it itself.
            torch.cuda.current_stream().synchronize()
        try:
            self._session.run_with_iobinding(self._binding)
        except _ERRORS as error:
            if full := _out_of_memory(error):
                raise full from error
            raise
        return vectors


def _explained(error: BaseException, provider: str) -> BaseException:
    """Why a session could not be opened: no memory, a missing library, or the error's own words.

    ONNX Runtime prints the dynamic linker's error on its own log and raises something else.
    """
    folder = Path(onnxruntime.__file__).parent / "capi"
    name = provider.removesuffix("ExecutionProvider").lower()
    reason = f": {_one_line(error)}"
    try:
        ctypes.CDLL(str(folder / "libonnxruntime_providers_shared.so"), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(folder / f"libonnxruntime_providers_{name}.so"))
    except OSError as missing:
        reason = f" did not load: {missing}"
    return _out_of_memory(error) or Unavailable(f"{provider}{reason}")


def _out_of_memory(error: BaseException) -> BaseException | None:
    """The error as torch's, if the device's memory is full."""
    text = str(error).lower()
    if "out of memory" in text or "failed to allocate memory" in text:
        return torch.OutOfMemoryError(f"ONNX Runtime: {_one_line(error)}")
    return None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


@dataclass(frozen=True)
class Exported:
    """A graph on disk, the seconds it took to make, and its operators by name."""

    path: Path
    export_s: float
    operators: dict[str, int]


def exported(request: Request) -> Exported:
    """The network, which must be a DINOv2, as a graph: from the cache, or exported now."""
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
        with warnings.catch_warnings(action="ignore"):
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
