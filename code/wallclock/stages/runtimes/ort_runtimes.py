"""ONNX Runtime by execution provider: CUDA, TensorRT, CPU. Input and output are bound on the device.

ONNX Runtime moves what a provider cannot run to the CPU, and runs all of it there when the provider
does not load. Here that is forbidden, and where the nodes went is read back.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import onnxruntime
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as state

from wallclock.errors import Unavailable, check_name
from wallclock.stages.runtimes.base import Floats, Request, Runtime, synchronizer
from wallclock.stages.runtimes.export import INPUT, INPUT_TYPES, OUTPUT, exported

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"

#: TF32 would compute FP32 products with ten bits of mantissa; PyTorch has it off, so has this.
_CUDA_OPTIONS = {"device_id": "0", "use_tf32": "0"}
_TENSORRT_OPTIONS = {"device_id": "0", "trt_fp16_enable": "1"}

_LIBRARIES = {
    CUDA: "libonnxruntime_providers_cuda.so",
    TENSORRT: "libonnxruntime_providers_tensorrt.so",
}

#: What a session raises; the library's own kinds do not share a base class below Exception.
_ERRORS = (
    RuntimeError,
    state.Fail,
    state.EPFail,
    state.RuntimeException,
    state.NotImplemented,
    state.InvalidGraph,
)

Provider = tuple[str, Mapping[str, str]]


def cpu(request: Request) -> Runtime:
    """The default CPU provider."""
    return _runtime(request, [(CPU, {})])


def cuda(request: Request) -> Runtime:
    """The CUDA provider, alone.

    Raises:
        Unavailable: it does not load, or leaves nodes to the CPU.
    """
    _load_cuda_libraries()
    return _runtime(request, [(CUDA, _CUDA_OPTIONS)])


def tensorrt(request: Request) -> Runtime:
    """TensorRT, and the CUDA provider for nodes that it leaves. The engine is built, never cached.

    Raises:
        Unavailable: it does not load, or leaves nodes to the CPU.
    """
    _load_cuda_libraries()
    with suppress(ImportError):
        import_module("tensorrt")  # its wheel brings libnvinfer and loads it, if it is installed
    return _runtime(request, [(TENSORRT, _TENSORRT_OPTIONS), (CUDA, _CUDA_OPTIONS)])


def open_session(model: Path, providers: Sequence[Provider], threads: int) -> tuple[Any, str]:
    """A session on the first of `providers`, and the providers that its nodes really are on.

    Raises:
        Unavailable: the first provider runs none of the graph, or some of it went to the CPU unasked.
    """
    wanted = providers[0][0]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what matters is in the exception, or read back below
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if wanted != CPU:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        session = onnxruntime.InferenceSession(
            model,
            options,
            providers=[(name, dict(choices)) for name, choices in providers],
            enable_fallback=0,
        )
    except _ERRORS as error:
        if wanted == CPU:
            raise
        raise _explained(error, wanted) from error
    return session, check_placement(_placement(session), wanted)


def check_placement(nodes: Mapping[str, int], wanted: str) -> str:
    """Nodes by provider → the providers' names, the wanted one first.

    Raises:
        Unavailable: the wanted provider has none, or the CPU has some that were not meant for it.
    """
    if not nodes.get(wanted):
        raise Unavailable(
            f"{wanted} took no part of the graph; it went to {', '.join(nodes) or 'no provider'}"
        )
    if wanted != CPU and nodes.get(CPU):
        raise Unavailable(f"{wanted} left {nodes[CPU]} nodes to the CPU: not a time of its own")
    return " + ".join(sorted(nodes, key=lambda name: (name != wanted, name)))


def _placement(session: Any) -> dict[str, int]:
    """Graph nodes by the provider that they were assigned to; a provider without any is not listed."""
    nodes: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        nodes[part.ep_name] += len(part.get_nodes())
    unused = set(nodes) - set(session.get_providers())
    assert not unused, f"nodes on providers that the session does not list: {unused}"
    return dict(nodes)


class _Bound:
    """A session with its input and output bound to buffers on the device.

    The binding holds bare addresses, so this holds the buffers.
    """

    def __init__(self, session: Any, request: Request) -> None:
        kind = INPUT_TYPES[request.dtype]
        self._session = session
        self._images = torch.from_numpy(request.images.astype(kind)).to(request.device)
        self._vectors = torch.empty(
            session.get_outputs()[0].shape, dtype=self._images.dtype, device=request.device
        )
        self._binding = session.io_binding()
        for bind, name, buffer in (
            (self._binding.bind_input, INPUT, self._images),
            (self._binding.bind_output, OUTPUT, self._vectors),
        ):
            bind(name, request.device, 0, kind, list(buffer.shape), buffer.data_ptr())

    def run(self) -> None:
        """Take the batch through the graph."""
        try:
            self._session.run_with_iobinding(self._binding)
        except _ERRORS as error:
            memory = _out_of_memory(error)
            if memory is None:
                raise
            raise memory from error

    def vectors(self) -> Floats:
        """The output buffer's content, in memory of its own."""
        host: Floats = self._vectors.float().cpu().numpy().copy()
        return host


def _runtime(request: Request, providers: Sequence[Provider]) -> Runtime:
    check_name(request.dtype, INPUT_TYPES, "dtype of an ONNX Runtime session")
    graph = exported(request)
    began = perf_counter()
    session, provider = open_session(graph.path, providers, request.threads)
    compile_s = perf_counter() - began
    bound = _Bound(session, request)
    synchronize = synchronizer(request.device)
    synchronize()  # torch copied the batch on another stream than the session's
    values = {
        "export_s": graph.export_s,
        "operators": graph.operators,
        "nodes": _placement(session),
    }
    return Runtime(bound.run, bound.vectors, provider, synchronize, compile_s, values)


def _load_cuda_libraries() -> None:
    """Load the CUDA and cuDNN libraries that torch's wheels brought, where ONNX Runtime looks for them."""
    if not torch.cuda.is_available():
        raise Unavailable(f"torch {torch.__version__} sees no CUDA device")
    preload: Any = onnxruntime.preload_dlls  # untyped in onnxruntime
    preload()


def _explained(error: BaseException, provider: str) -> BaseException:
    """Why a session could not be made: out of memory, a library that is not here, or its own words."""
    memory = _out_of_memory(error)
    if memory is not None:
        return memory
    missing = missing_library(provider)
    return Unavailable(
        f"{provider} did not load: {missing}" if missing else f"{provider}: {_one_line(error)}"
    )


def missing_library(provider: str) -> str:
    """What the dynamic linker says of a provider's library; empty if it loads.

    ONNX Runtime prints this on its own log and raises something else.
    """
    folder = Path(onnxruntime.__file__).parent / "capi"
    try:
        ctypes.CDLL(str(folder / "libonnxruntime_providers_shared.so"), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(folder / _LIBRARIES[provider]))
    except OSError as error:
        return str(error)
    return ""


def _out_of_memory(error: BaseException) -> torch.OutOfMemoryError | None:
    """ONNX Runtime's several ways to say that the device is full, as torch's one."""
    text = str(error)
    full = any(words in text.lower() for words in ("out of memory", "failed to allocate memory"))
    return torch.OutOfMemoryError(f"ONNX Runtime: {_one_line(error)}") if full else None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
