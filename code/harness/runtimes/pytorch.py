"""The product's PyTorch, eager, compiled or captured."""

from typing import Any

import torch

from harness.runtimes import NetworkRequest
from harness.runtimes.compiled import compiled
from wallclock.stages.forward import Network, Step, pytorch

#: A recipe's dtype → that of the images: graphs in int8 take FP32 images, and quantize themselves.
TORCH_DTYPES = pytorch.TORCH_DTYPES | dict.fromkeys(
    ("int8", "int8-static", "int8-weights"), torch.float32
)


def build(request: NetworkRequest) -> Network:
    """Move the network to the device in its dtype, and compile it."""

    def compile_step(step: Step) -> tuple[Step, str]:
        dtype = pytorch.TORCH_DTYPES[request.dtype]
        example: Any = torch.zeros(request.shape, dtype=dtype, device=request.device)
        if request.normalize is not None:
            example = example.permute(0, 2, 3, 1).to(torch.uint8).contiguous()
        return compiled(step, example, request.compile)

    return pytorch.build(
        request.network,
        request.weights_digest,
        request.dtype,
        request.device,
        request.normalize,
        None if request.compile == "none" else compile_step,
    )
