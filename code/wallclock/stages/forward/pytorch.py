"""PyTorch: eager, or as the suite compiles it."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

from wallclock.stages.forward.networks import Network, Step

#: A recipe's dtype → torch's.
TORCH_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def build(
    network: Any,
    weights_digest: str,
    dtype: str,
    device: str,
    normalize: Step | None,
    compiled: Callable[[Step], tuple[Step, str]] | None = None,
) -> Network:
    """Move an FP32 network, which is in evaluation mode, to the device in this dtype.

    `normalize`: as in `forward.make`. `compiled`: a step as it is to run, and what it then is.
    """
    # FP32 means FP32: cuDNN's convolutions would otherwise round to ten bits on newer GPUs.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    of_torch = TORCH_DTYPES[dtype]
    network = network.to(device=device, dtype=of_torch)
    if device == "cuda":  # where convolutions in half precision are made for it
        network = network.to(memory_format=torch.channels_last)

    def step(batch: Any) -> Any:
        # Normalized in FP32, then rounded once, as on the host.
        images = batch if normalize is None else normalize(batch).to(of_torch)
        return network(pixel_values=images).pooler_output

    began = perf_counter()
    run, label = compiled(step) if compiled else (step, "none")
    compile_s = perf_counter() - began if compiled else None

    def embed(batch: Any) -> Any:
        with torch.inference_mode():
            return run(batch.to(of_torch) if normalize is None else batch)

    first = next(network.parameters())
    return Network(
        embed,
        weights_digest,
        runtime="pytorch" if isinstance(network, torch.nn.Module) else "unknown",
        provider=f"torch {first.device.type} {str(first.dtype).removeprefix('torch.')}",
        dtype=next(name for name, value in TORCH_DTYPES.items() if value == first.dtype),
        compile=label,
        values={"compile_s": compile_s},
    )
