"""PyTorch: eager, compiled by torch.compile, and replayed as a CUDA graph."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch._dynamo.exc import TorchDynamoException

from wallclock.errors import Unavailable, check_name
from wallclock.stages.runtimes.base import Floats, Request, Runtime, synchronizer

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

#: Passes on a side stream before a capture: libraries allocate their workspaces in the first ones.
_PASSES_BEFORE_CAPTURE = 3


def eager(request: Request) -> Runtime:
    """The network as the jobs run it."""
    network, images = _on_device(request)
    return _runtime(request, network, _forward(network, images))


def compiled(request: Request) -> Runtime:
    """torch.compile in its default mode, fixed shapes. The first call compiles.

    Raises:
        Unavailable: the compiler that it needs (a C++ compiler, Triton) is not here or refuses.
    """
    # A compiler cache that is warm from the last run would make compile_s a different figure.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(request.scratch / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(request.scratch / "triton")
    network, images = _on_device(request)
    forward = _forward(torch.compile(network, dynamic=False), images)
    began = perf_counter()
    try:
        forward()
    except TorchDynamoException as error:
        raise Unavailable(f"torch.compile failed: {_last_line(error)}") from error
    synchronizer(request.device)()
    return _runtime(request, network, forward, perf_counter() - began)


def cuda_graph(request: Request) -> Runtime:
    """The eager pass captured once as a CUDA graph and replayed: no launch cost a kernel.

    `compile_s` is the passes that a capture needs before it, and the capture.
    """
    network, images = _on_device(request)
    forward = _forward(network, images)
    began = perf_counter()
    # The recipe of PyTorch's notes on CUDA graphs: warm up on a side stream, then capture.
    new_stream: Any = torch.cuda.Stream  # untyped in torch
    side, stream = new_stream(), torch.cuda.current_stream()
    side.wait_stream(stream)
    with torch.cuda.stream(side):
        for _ in range(_PASSES_BEFORE_CAPTURE):
            forward()
    stream.wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = forward()
    torch.cuda.synchronize()
    compile_s = perf_counter() - began

    def replay() -> Any:
        graph.replay()
        return captured

    return _runtime(request, network, replay, compile_s)


def _on_device(request: Request) -> tuple[Any, torch.Tensor]:
    """The network and the batch where they are to run, in the dtype they are to run in.

    Raises:
        Unavailable: no such device.
    """
    kind = _DTYPES[check_name(request.dtype, _DTYPES, "dtype of a PyTorch runtime")]
    if request.device == "cuda" and not torch.cuda.is_available():
        raise Unavailable(f"torch {torch.__version__} sees no CUDA device")
    network = request.network.to(device=request.device, dtype=kind)
    return network, torch.from_numpy(request.images).to(device=request.device, dtype=kind)


def _forward(network: Any, images: torch.Tensor) -> Callable[[], torch.Tensor]:
    def forward() -> torch.Tensor:
        with torch.inference_mode():
            vectors: torch.Tensor = network(pixel_values=images).pooler_output
            return vectors

    return forward


def _runtime(
    request: Request,
    network: Any,
    forward: Callable[[], torch.Tensor],
    compile_s: float | None = None,
) -> Runtime:
    last: list[torch.Tensor] = []

    def run() -> None:
        last[:] = [forward()]

    def vectors() -> Floats:
        host: Floats = last[0].float().cpu().numpy()
        return host

    placed = next(network.parameters())
    provider = f"torch {placed.device.type} {str(placed.dtype).removeprefix('torch.')}"
    return Runtime(run, vectors, provider, synchronizer(request.device), compile_s)


def _last_line(error: BaseException) -> str:
    """The line that says what happened: the first that is not empty."""
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
    )
