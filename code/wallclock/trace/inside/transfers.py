"""Tensors that move between the host and a device."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from .tracer import Call, Tracer

Question = Callable[[], bool]

#: Versions that torch names where it was built for a device.
_PLATFORMS = ("cuda", "hip", "xpu")
#: Methods whose result may be elsewhere than the tensor, and those that bring values to the host.
_MOVES = ("to", "cuda", "cpu", "copy_")
_VALUES = ("item", "tolist", "numpy")


def patch_tensor(tracer: Tracer, torch: Any, is_compiling: Question) -> None:
    """Nothing where torch was built without any device."""
    if any(getattr(torch.version, name, None) for name in _PLATFORMS):
        wrap_methods(tracer, torch.Tensor, is_compiling)


def wrap_methods(tracer: Tracer, cls: type, is_compiling: Question) -> None:
    """Wrap the methods of a class of tensors that its base implements."""
    for name in _MOVES:
        setattr(cls, name, _moving(tracer, name, getattr(cls, name), is_compiling))
    for name in _VALUES:
        setattr(cls, name, _giving(tracer, name, getattr(cls, name), is_compiling))


def _moving(tracer: Tracer, name: str, original: Call, is_compiling: Question) -> Call:
    to_device = tracer.slot("h2d", f"torch.Tensor.{name}")
    to_host = tracer.slot("d2h", f"torch.Tensor.{name}")

    @wraps(original)
    def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        source = args[0] if name == "copy_" and args else self
        entered = tracer.enter(to_device)
        moved = 0
        try:
            result = original(self, *args, **kwargs)
            if source.is_cpu != result.is_cpu:
                moved = to_device if source.is_cpu else to_host
            return result
        finally:
            if moved:
                tracer.leave(moved, entered)
            else:
                tracer.drop(entered)

    return traced


def _giving(tracer: Tracer, name: str, original: Call, is_compiling: Question) -> Call:
    slot = tracer.slot("d2h", f"torch.Tensor.{name}")

    @wraps(original)
    def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or self.is_cpu:
            return original(self, *args, **kwargs)
        entered = tracer.enter(slot)
        try:
            return original(self, *args, **kwargs)
        finally:
            tracer.leave(slot, entered)

    return traced
