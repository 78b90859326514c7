"""ONNX Runtime by execution provider (CUDA, TensorRT, CPU), on a graph exported from PyTorch.

Input and output stay on the device. ONNX Runtime moves what a provider cannot run to the CPU, and
runs all of it there when the provider does not load. Here that is forbidden, and the placement of
nodes is read back.
"""

import ctypes
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as state

from harness.runtimes import NetworkRequest
from harness.runtimes.compiled import fixed_shape
from harness.runtimes.export import INPUT, OUTPUT, export_graph
from harness.runtimes.pytorch import TORCH_DTYPES
from wallclock.errors import Unavailable
from wallclock.stages.forward import Network

#: Of a session from ONNX Runtime 1.24 on; before, the profile of a run says it.
_TELLS = "get_provider_graph_assignment_info"
CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"

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
#: An operator that only a quantized graph has → the dtype.
_QUANTIZED = {
    "MatMulInteger": "int8",
    "QuantizeLinear": "int8-static",
    "MatMulNBits": "int8-weights",
}


def build(request: NetworkRequest) -> Network:
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
    graph = export_graph(request)
    operators = graph.operators
    began = perf_counter()
    session = open_session(graph.path, providers, torch.get_num_threads())
    compile_s = perf_counter() - began
    nodes = placement(session)
    provider = check_placement(nodes, providers[0][0])
    session_dtype = _DTYPES[session.get_inputs()[0].type]
    run = fixed_shape(_Bound(session, session_dtype, request.device), request.shape[0])
    normalize = request.normalize
    return Network(
        run if normalize is None else lambda batch: run(normalize(batch)),
        request.weights_digest,
        runtime="tensorrt" if provider.startswith(TENSORRT) else "onnxruntime",
        provider=provider,
        dtype=next((_QUANTIZED[name] for name in _QUANTIZED if name in operators), session_dtype),
        values={
            "compile_s": compile_s,
            "export_s": graph.export_s,
            "operators": operators,
            "nodes": nodes,
        },
    )


def open_session(model: Path, providers: Sequence[Provider], threads: int) -> Any:
    """A session on the first of `providers`; raises `Unavailable` where that does not load."""
    wanted = providers[0][0]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what matters is in the exception, or read back below
    if hasattr(onnxruntime.InferenceSession, _TELLS):
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    else:
        options.enable_profiling = True
        options.profile_file_prefix = str(model.with_suffix(".profile"))
    if wanted != CPU:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    open_: Any = onnxruntime.InferenceSession
    try:
        return open_(model, options, providers=list(providers), enable_fallback=0)
    except _ERRORS as error:
        if wanted == CPU:
            raise
        raise _explained(error, wanted) from error


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


def placement(session: Any) -> dict[str, int]:
    """Graph nodes by the provider that they are on; a provider without any is not listed."""
    if not hasattr(session, _TELLS):
        return _profiled(session)
    nodes: Counter[str] = Counter()
    for part in getattr(session, _TELLS)():
        nodes[part.ep_name] += len(part.get_nodes())
    return dict(nodes)


def _profiled(session: Any) -> dict[str, int]:
    """The same from the profile of one run, which ends the session's profiling."""
    (batch,) = session.get_inputs()
    dtype = {"tensor(float)": np.float32, "tensor(float16)": np.float16}[batch.type]
    session.run(None, {batch.name: np.zeros(batch.shape, dtype)})
    path = Path(session.end_profiling())
    events = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    placed = {
        event["args"].get("node_index", event["name"]): event["args"]["provider"]
        for event in events
        if event.get("cat") == "Node" and event.get("args", {}).get("provider")
    }
    return dict(Counter(placed.values()))


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
            full = _out_of_memory(error)
            if full:
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
