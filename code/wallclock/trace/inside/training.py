"""Backward passes and optimizer steps of torch."""

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

from .device import DeviceClock
from .patch import replace
from .tracer import Call, Tracer

Question = Callable[[], bool]


def patch_autograd(tracer: Tracer, module: ModuleType, is_compiling: Question) -> None:
    """`Tensor.backward` calls `torch.autograd.backward` by its name in the module."""
    slot = tracer.slot("backward", "torch.autograd.backward")
    device = DeviceClock(tracer)

    def wrap(original: Call) -> Call:
        @wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(tensors, *args, **kwargs)
            first = tensors if hasattr(tensors, "is_cuda") else next(iter(tensors), None)
            pair = device.begin((first,))
            entered = tracer.enter(slot)
            try:
                return original(tensors, *args, **kwargs)
            finally:
                tracer.leave(slot, entered)
                device.end(pair)

        return backward

    replace(tracer, module, "backward", wrap)


def patch_optimizer(tracer: Tracer, module: ModuleType, is_compiling: Question) -> None:
    """torch wraps the `step` of every optimizer class by this method; wrap what it gives."""

    def wrap(original: Call) -> Call:
        @wraps(original)
        def profile_hook_step(function: Call) -> Call:
            return _step(tracer, original(function), is_compiling)

        return profile_hook_step

    replace(tracer, module, "Optimizer.profile_hook_step", wrap)


def _step(tracer: Tracer, original: Call, is_compiling: Question) -> Call:
    @wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        slot = tracer.slot("optimizer", f"{type(self).__name__}.step")
        entered = tracer.enter(slot)
        try:
            return original(self, *args, **kwargs)
        finally:
            tracer.leave(slot, entered)

    return step
