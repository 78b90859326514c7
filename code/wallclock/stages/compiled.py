"""Forward passes of one fixed shape: compiled by torch.compile, or captured as a CUDA graph.

Both are made for the shape of the first batch; a smaller one is filled up and its vectors cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wallclock.errors import Unavailable, check_name
from wallclock.spec import COMPILERS

#: Passes on a side stream before a capture: libraries allocate their workspaces in the first ones.
_PASSES_BEFORE_CAPTURE = 3

Run = Callable[[Any], Any]


def make(name: str, run: Run, device: str) -> Run:
    """`run` as it is, compiled, or captured.

    Raises:
        Unavailable: CUDA graphs without CUDA.
    """
    check_name(name, COMPILERS, "compile")
    if name == "none":
        return run
    if name == "compile":
        return _padded(_compiled(run))
    if device != "cuda":
        raise Unavailable(f"CUDA graphs need a CUDA GPU, this run is on device={device}")
    return _padded(_captured(run))


def _padded(run: Run) -> Run:
    size = 0

    def padded(batch: Any) -> Any:
        nonlocal size
        n = len(batch)
        size = size or n
        if n == size:
            return run(batch)
        full = batch.new_zeros((size, *batch.shape[1:]))
        full[:n] = batch
        return run(full)[:n]

    return padded


def _compiled(run: Run) -> Run:
    import torch

    compiled: Run = torch.compile(run, dynamic=False)
    return compiled


def _captured(run: Run) -> Run:
    """The recipe of PyTorch's notes on CUDA graphs: warm up on a side stream, then capture."""
    import torch

    cuda: Any = torch.cuda
    graph = cuda.CUDAGraph()
    held: list[Any] = []

    def capture(batch: Any) -> None:
        given = batch.clone()
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for _ in range(_PASSES_BEFORE_CAPTURE):
                run(given)
        cuda.current_stream().wait_stream(side)
        cuda.synchronize()
        with cuda.graph(graph):
            result = run(given)
        held[:] = [given, result]

    def replay(batch: Any) -> Any:
        if not held:
            capture(batch)
        held[0].copy_(batch, non_blocking=True)
        graph.replay()
        # A copy: the next replay writes into the same memory.
        return held[1].clone()

    return replay
