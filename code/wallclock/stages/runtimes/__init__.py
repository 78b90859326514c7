"""Stage `forward` by other means: the same network run by PyTorch and by ONNX Runtime.

A builder takes the network (FP32, in host memory) and one batch of images, and returns a `Runtime`
whose input already lies on the device. Builders never fall back: what cannot run as asked raises
`Unavailable` with the reason.
"""

from __future__ import annotations

from importlib import import_module

from wallclock.errors import Unavailable, check_name
from wallclock.stages.runtimes.base import Builder, Request, Runtime

__all__ = ["RUNTIMES", "Request", "Runtime", "build", "check"]

#: Name → module and function, imported when asked for, and the device that it needs.
_BUILDERS = {
    "pytorch": ("torch_runtimes", "eager", "any"),
    "pytorch-compile": ("torch_runtimes", "compiled", "any"),
    "pytorch-cudagraph": ("torch_runtimes", "cuda_graph", "cuda"),
    "onnxruntime": ("ort_runtimes", "cuda", "cuda"),
    "onnxruntime-tensorrt": ("ort_runtimes", "tensorrt", "cuda"),
    "onnxruntime-cpu": ("ort_runtimes", "cpu", "cpu"),
}

RUNTIMES = tuple(_BUILDERS)


def check(name: str, device: str) -> None:
    """Refuse what needs another device, before anything is loaded.

    Raises:
        UserError: no runtime is called `name`.
        Unavailable: it does not run on `device`.
    """
    check_name(name, RUNTIMES, "runtime")
    needs = _BUILDERS[name][2]
    if needs not in ("any", device):
        wanted = {"cuda": "a CUDA GPU", "cpu": "the CPU"}[needs]
        raise Unavailable(f"{name} runs on {wanted} only, this run on device={device}")


def build(name: str, request: Request) -> Runtime:
    """Make a runtime ready to run its batch: exported, compiled or captured.

    Raises:
        UserError: no runtime is called `name`.
        Unavailable: a library, provider or device that it needs is not here.
    """
    check(name, request.device)
    module, function, _ = _BUILDERS[name]
    builder: Builder = getattr(import_module(f"{__name__}.{module}"), function)
    return builder(request)
