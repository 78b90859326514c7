"""PyTorch's forward pass compiled by torch.compile, or captured as a CUDA graph."""

from typing import Any

import torch
from torch._dynamo.exc import TorchDynamoException

from wallclock.errors import Unavailable, first_line
from wallclock.stages.forward import Step

#: Passes on a side stream before a capture: libraries allocate their workspaces in the first ones.
_PASSES_BEFORE_CAPTURE = 3


def compiled(step: Step, batch: Any, how: str) -> tuple[Step, str]:
    """`step` compiled or captured for the shape of `batch`, and run once; for batches of any size.

    Also what it is, read back. Raises Unavailable: there is no compiler.
    """
    run: Any
    with torch.inference_mode():
        if how == "cuda_graphs":
            run = CudaGraph(step, batch)
        else:
            run = torch.compile(step, dynamic=False)
            try:
                run(batch)
            except TorchDynamoException as error:
                raise Unavailable(f"torch.compile failed: {first_line(error)}") from error
            if batch.device.type == "cuda":
                torch.cuda.synchronize()
    label = "compile" if hasattr(run, "_torchdynamo_orig_callable") else "none"
    label = "cuda_graphs" if isinstance(run, CudaGraph) else label
    return fixed_shape(run, len(batch)), label


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
