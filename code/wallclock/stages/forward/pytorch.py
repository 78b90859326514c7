"""PyTorch: eager, compiled by torch.compile, or captured as a CUDA graph."""

from time import perf_counter
from typing import Any

import torch
from torch._dynamo.exc import TorchDynamoException

from wallclock.errors import Unavailable, first_line
from wallclock.stages.forward import Network, NetworkRequest, Step

#: A recipe's dtype → that of the images. The first with a torch dtype names it. Graphs in int8 take
#: FP32 images and quantize by themselves.
TORCH_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
TORCH_DTYPES |= dict.fromkeys(("int8", "int8-static", "int8-weights"), torch.float32)

#: Passes on a side stream before a capture: libraries allocate their workspaces in the first ones.
_PASSES_BEFORE_CAPTURE = 3


def build(request: NetworkRequest) -> Network:
    """Move the network to the device in its dtype, and compile or capture it."""
    # FP32 means FP32: cuDNN's convolutions would otherwise round to ten bits on newer GPUs.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    dtype, size = TORCH_DTYPES[request.dtype], request.shape[0]
    normalize = request.normalize
    network = request.network.to(device=request.device, dtype=dtype)

    def step(batch: Any) -> Any:
        # Normalized in FP32, then rounded once, as on the host.
        images = batch if normalize is None else normalize(batch).to(dtype)
        return network(pixel_values=images).pooler_output

    example = torch.zeros(request.shape, dtype=dtype, device=request.device)
    if normalize is not None:
        example = example.permute(0, 2, 3, 1).to(torch.uint8).contiguous()
    began = perf_counter()
    run = _compiled(step, example, request.compile)
    compile_s = None if run is step else perf_counter() - began
    of_any_size = run if run is step else fixed_shape(run, size)

    def embed(batch: Any) -> Any:
        with torch.inference_mode():
            return of_any_size(batch.to(dtype) if normalize is None else batch)

    compiled = "compile" if hasattr(run, "_torchdynamo_orig_callable") else "none"
    first = next(network.parameters())
    return Network(
        embed,
        request.weights_digest,
        runtime="pytorch" if isinstance(network, torch.nn.Module) else "unknown",
        provider=f"torch {first.device.type} {str(first.dtype).removeprefix('torch.')}",
        dtype=next(name for name, value in TORCH_DTYPES.items() if value == first.dtype),
        compile="cuda_graphs" if isinstance(run, CudaGraph) else compiled,
        values={"compile_s": compile_s, "attention": _attention(network)},
    )


def _attention(network: Any) -> str:
    how = str(getattr(network.config, "_attn_implementation", "none"))
    return "fused" if how == "sdpa" else how


def fixed_shape(run: Step, size: int) -> Step:
    """Let `run`, which takes batches of `size` images only, take any number.

    A smaller batch is padded with zeros and its vectors are cut; a larger one runs in pieces.
    """

    def run_any(batch: Any) -> Any:
        n = len(batch)
        if n == size:
            return run(batch)
        if n > size:
            return torch.cat([run_any(part) for part in batch.split(size)])
        padded = batch.new_zeros((size, *batch.shape[1:]))
        padded[:n] = batch
        return run(padded)[:n]

    return run_any


class CudaGraph:
    """A forward pass captured as a CUDA graph; a replay pays for one launch instead of hundreds."""

    def __init__(self, step: Step, batch: Any) -> None:
        # PyTorch's notes on CUDA graphs: warm up on a side stream, then capture.
        cuda: Any = torch.cuda  # untyped in torch
        # A replay reads the weights where the capture found them, so they must stay alive.
        self._step = step
        self._input, self._graph = batch, cuda.CUDAGraph()
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for _ in range(_PASSES_BEFORE_CAPTURE):
                step(batch)
        cuda.current_stream().wait_stream(side)
        cuda.synchronize()
        # Other threads, such as DataLoader's that pins memory, may use CUDA during the capture.
        with cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._output = step(batch)

    def __call__(self, batch: Any) -> Any:
        """Replay; the vectors are a copy, because the next replay overwrites the output."""
        self._input.copy_(batch, non_blocking=True)
        self._graph.replay()
        return self._output.clone()


def _compiled(step: Step, batch: Any, how: str) -> Step:
    """`step`, or `step` compiled or captured for the shape of `batch`, and run once."""
    if how == "none":
        return step
    with torch.inference_mode():
        if how == "cuda_graphs":
            return CudaGraph(step, batch)
        compiled: Step = torch.compile(step, dynamic=False)
        try:
            compiled(batch)
        except TorchDynamoException as error:
            raise Unavailable(f"torch.compile failed: {first_line(error)}") from error
        if batch.device.type == "cuda":
            torch.cuda.synchronize()
    return compiled
