"""torch: models, transforms, backward passes, optimizer steps, and tensors that move to a device.

The outermost call of a model is `forward`, that of a transform what it does. How long a device was
busy is told by pairs of events around passes, asked for later.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any

from . import layout, notes
from .models import Models
from .patch import interpose, replace
from .targets import CLASS_STAGES, TRANSFORM_PACKAGES
from .tracer import Call, Tracer, disguise_as

#: Events at the start and at the end of a pass.
Pair = tuple[Any, Any]

#: Versions that torch names where it was built for a device.
_PLATFORMS = ("cuda", "hip", "xpu")
#: Methods whose result may be elsewhere than the tensor.
_COPIES = ("to", "cuda", "cpu", "copy_", "item", "tolist", "numpy")


def patch_torch(tracer: Tracer, torch: Any) -> None:
    """What a program calls of torch, once all of torch is imported."""
    # While torch compiles what is called, it may see the original only.
    is_compiling, is_tracing = torch.compiler.is_compiling, torch.jit.is_tracing
    local = tracer.local

    def is_inside() -> Any:
        return is_compiling() or getattr(local, "in_model", False) or is_tracing()

    _patch_module(tracer, torch.nn.modules.module, is_inside)
    _patch_interpolate(tracer, torch.nn.functional, is_inside)
    _patch_autograd(tracer, torch.autograd, is_compiling)
    # torch.optim deletes the name of its module.
    _patch_optimizer(tracer, import_module("torch.optim.optimizer"), is_compiling)
    patch_tensor(tracer, torch, is_compiling)


def _patch_module(tracer: Tracer, module: ModuleType, is_inside: Call) -> None:
    kinds, device = _Kinds(tracer), DeviceClock(tracer)
    models = tracer.models = Models(tracer, keeps=tracer.tries)

    def wrap(original: Call) -> Call:
        local = tracer.local

        # A plain signature; dynamo calls the original, and skips this file (`patch_dynamo`).
        @wraps(original)
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            slot = 0 if is_inside() else kinds.slot(self)
            if not slot:
                return original(self, *args, **kwargs)
            stage = tracer.stage_of(slot)
            is_model = stage == "forward"
            given = *args, *kwargs.values()
            images = notes.batch_of(given)
            if is_model:
                models.note(slot, images, self, args, kwargs)
            pair = device.begin(given) if is_model else None
            local.in_model = is_model
            entered = tracer.enter(slot)
            try:
                result = original(self, *args, **kwargs)
            finally:
                tracer.leave(slot, entered)
                local.in_model = False
                device.end(pair)
            if is_model:
                tracer.keep_least(slot, images, tracer.clock() - entered[1])
            if stage != "resize":  # which counts its images where it calls a library
                tracer.count(slot, images if is_model else max(images, 1))
            return result

        return __call__

    replace(tracer, module, "Module.__call__", wrap)


class _Kinds:
    """What modules are: slot by class, 0 for one that only calls others."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._slots: dict[type, int] = {}

    def slot(self, module: Any) -> int:
        cls = type(module)
        slot = self._slots.get(cls)
        if slot is None:
            slot = self._slots[cls] = self._slot_of_class(cls)
        if not slot or self._tracer.stage_of(slot) != "forward":
            return slot
        # A chain of transforms is no model; nor is what has no weights, in a worker.
        children = list(module.children()) if cls.__name__ in ("Sequential", "ModuleList") else ()
        if children and all(_package_of(type(child)) for child in children):
            return 0
        is_worker = self._tracer.counters.words[layout.IS_WORKER]
        if is_worker and next(module.parameters(), None) is None:
            return self._tracer.slot("transform", cls.__name__)
        return slot

    def _slot_of_class(self, cls: type) -> int:
        package = _package_of(cls)
        if not package:
            return self._tracer.slot("forward", f"{cls.__name__}.forward")
        stage = CLASS_STAGES.get(cls.__name__, "transform")
        return self._tracer.slot(stage, f"{package}.{cls.__name__}") if stage else 0


def _package_of(cls: type) -> str:
    """The package of transforms that a class comes from; empty for none."""
    homes = [base.__module__ for base in cls.__mro__]
    return next((p for home in homes for p in TRANSFORM_PACKAGES if home.startswith(p)), "")


def _patch_interpolate(tracer: Tracer, module: ModuleType, is_inside: Call) -> None:
    """A resize of images, except inside a model."""

    def wrap(original: Call) -> Call:
        slot = tracer.slot("resize", "torch.nn.functional.interpolate")
        traced = tracer.timed(original, slot, notes.resized_batch)

        def interpolate(*args: Any, **kwargs: Any) -> Any:
            return (original if is_inside() else traced)(*args, **kwargs)

        return disguise_as(original, interpolate)

    replace(tracer, module, "interpolate", wrap)


def patch_dynamo(tracer: Tracer, module: Any) -> None:
    """Have torch.compile begin at a model's own `forward`, as without this file around it."""
    module.SKIP_DIRS.append(os.path.abspath(__file__))
    module._recompile_re()


def _patch_autograd(tracer: Tracer, module: ModuleType, is_compiling: Call) -> None:
    """`Tensor.backward` calls `torch.autograd.backward` by its name in the module."""
    slot = tracer.slot("backward", "torch.autograd.backward")
    device = DeviceClock(tracer)

    def backward(original: Call, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(tensors, *args, **kwargs)
        first = tensors if hasattr(tensors, "is_cuda") else next(iter(tensors), None)
        pair = device.begin((first,))
        try:
            return tracer.call(slot, original, tensors, *args, **kwargs)
        finally:
            device.end(pair)

    interpose(tracer, module, "backward", backward)


def _patch_optimizer(tracer: Tracer, module: ModuleType, is_compiling: Call) -> None:
    """torch wraps the `step` of every optimizer class by this method; wrap what it gives."""

    def profile_hook_step(original: Call, function: Call) -> Call:
        wrapped = original(function)

        @wraps(wrapped)
        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return wrapped(self, *args, **kwargs)
            slot = tracer.slot("optimizer", f"{type(self).__name__}.step")
            return tracer.call(slot, wrapped, self, *args, **kwargs)

        return step

    interpose(tracer, module, "Optimizer.profile_hook_step", profile_hook_step)


def patch_tensor(tracer: Tracer, torch: Any, is_compiling: Call) -> None:
    """Wrap the methods that tensors inherit; nothing where torch was built without any device."""
    if any(getattr(torch.version, name, None) for name in _PLATFORMS):
        for name in _COPIES:
            original = getattr(torch.Tensor, name)
            setattr(torch.Tensor, name, _copying(tracer, name, original, is_compiling))


def _copying(tracer: Tracer, name: str, original: Call, is_compiling: Call) -> Call:
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
            if source.is_cpu != getattr(result, "is_cpu", True):  # as numbers are
                moved = to_device if source.is_cpu else to_host
            return result
        finally:
            # The time of what moved nothing is that of the function around it.
            tracer.leave(moved or entered[0], entered, calls=1 if moved else 0)

    return traced


class DeviceClock:
    """Adds up the time between events on a stream, and never waits for one."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._pending: deque[Pair] = deque()

    def begin(self, arguments: Iterable[Any]) -> Pair | None:
        """Record the start of a pass; None where its first tensor is not on a GPU."""
        try:
            tensor = next((value for value in arguments if hasattr(value, "is_cuda")), None)
            if tensor is None or not tensor.is_cuda:
                return None
            cuda: Any = import_module("torch.cuda")
            if cuda.is_current_stream_capturing():  # the events would become part of the graph
                return None
            if self.collect not in self._tracer.at_end:
                self._tracer.write(layout.DEVICE, str(cuda.get_device_name(tensor.device)))
                self._tracer.at_end.append(self.collect)
            pair = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            pair[0].record()
            return pair
        except Exception as error:  # noqa: BLE001 - the pass itself must run
            self._tracer.complain("the device", error)
            return None

    def end(self, pair: Pair | None) -> None:
        """Record the end; add up the earlier passes that the device has done."""
        if pair is not None:
            try:
                pair[1].record()
                self._pending.append(pair)
                self.collect()
            except Exception as error:  # noqa: BLE001 - as above
                self._tracer.complain("the device", error)

    def collect(self) -> None:
        """Add up what is done, in the order of the passes."""
        while self._pending and self._pending[0][1].query():
            start, end = self._pending.popleft()
            busy_ns = round(1e6 * start.elapsed_time(end))
            self._tracer.counters.words[layout.DEVICE_BUSY_NS] += busy_ns
