"""PyTorch: eager, or as the suite compiles it."""

from time import perf_counter
from typing import Any

import torch

from wallclock.stages.forward import Network, NetworkRequest, registered

#: A recipe's dtype → that of the images. The first with a torch dtype names it. Graphs in int8 take
#: FP32 images and quantize by themselves.
TORCH_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
TORCH_DTYPES |= dict.fromkeys(("int8", "int8-static", "int8-weights"), torch.float32)


def build(request: NetworkRequest) -> Network:
    """Move the network to the device in its dtype, and compile it."""
    # FP32 means FP32: cuDNN's convolutions would otherwise round to ten bits on newer GPUs.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    dtype, normalize = TORCH_DTYPES[request.dtype], request.normalize
    network = request.network.to(device=request.device, dtype=dtype)
    if request.device == "cuda":  # where convolutions in half precision are made for it
        network = network.to(memory_format=torch.channels_last)

    def step(batch: Any) -> Any:
        # Normalized in FP32, then rounded once, as on the host.
        images = batch if normalize is None else normalize(batch).to(dtype)
        return network(pixel_values=images).pooler_output

    began = perf_counter()
    run, compiled = step, "none"
    if request.compile != "none":
        example = torch.zeros(request.shape, dtype=dtype, device=request.device)
        if normalize is not None:
            example = example.permute(0, 2, 3, 1).to(torch.uint8).contiguous()
        run, compiled = registered("compile").compiled(step, example, request.compile)
    compile_s = None if run is step else perf_counter() - began

    def embed(batch: Any) -> Any:
        with torch.inference_mode():
            return run(batch.to(dtype) if normalize is None else batch)

    first = next(network.parameters())
    return Network(
        embed,
        request.weights_digest,
        runtime="pytorch" if isinstance(network, torch.nn.Module) else "unknown",
        provider=f"torch {first.device.type} {str(first.dtype).removeprefix('torch.')}",
        dtype=next(name for name, value in TORCH_DTYPES.items() if value == first.dtype),
        compile=compiled,
        values={"compile_s": compile_s},
    )
