"""torch's modules: the outermost call of a model is `forward`, that of a transform what it does."""

import os
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any

from . import layout, notes, training, transfers
from .device import DeviceClock
from .patch import noted, replace
from .targets import CLASS_STAGES, TRANSFORM_PACKAGES
from .tracer import Call, Tracer, in_the_place_of

#: Whether torch compiles what is called: then only the original may be seen.
Question = Callable[[], bool]


def patch_torch(tracer: Tracer, torch: Any) -> None:
    """What a program calls of torch, once all of torch is imported."""
    is_compiling, is_tracing = torch.compiler.is_compiling, torch.jit.is_tracing
    _patch_module(tracer, torch.nn.modules.module, is_compiling, is_tracing)
    _patch_interpolate(tracer, torch.nn.functional, is_compiling, is_tracing)
    training.patch_autograd(tracer, torch.autograd, is_compiling)
    # torch.optim deletes the name of its module.
    training.patch_optimizer(tracer, import_module("torch.optim.optimizer"), is_compiling)
    transfers.patch_tensor(tracer, torch, is_compiling)


def _patch_module(
    tracer: Tracer, module: ModuleType, is_compiling: Question, is_tracing: Question
) -> None:
    kinds = _Kinds(tracer)
    device = DeviceClock(tracer)

    def wrap(original: Call) -> Call:
        local = tracer.local

        # A plain signature; dynamo calls the original, and skips this file (`patch_dynamo`).
        @wraps(original)
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if is_compiling() or getattr(local, "in_model", False):
                return original(self, *args, **kwargs)
            slot = kinds.slot(self)
            if not slot or is_tracing():
                return original(self, *args, **kwargs)
            stage = tracer.stage_of(slot)
            is_model = stage == "forward"
            images = notes.batch_of((*args, *kwargs.values()))
            pair = device.begin((*args, *kwargs.values())) if is_model else None
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
        if slot and self._tracer.stage_of(slot) == "forward":
            return self._checked(module, slot)
        return slot

    def _slot_of_class(self, cls: type) -> int:
        if is_transform(cls):
            stage = CLASS_STAGES.get(cls.__name__, "transform")
            return self._tracer.slot(stage, f"{_package(cls)}.{cls.__name__}") if stage else 0
        return self._tracer.slot("forward", f"{cls.__name__}.forward")

    def _checked(self, module: Any, slot: int) -> int:
        """A chain of transforms is no model; nor is what has no weights, in a worker."""
        if type(module).__name__ in ("Sequential", "ModuleList"):
            children = list(module.children())
            if children and all(is_transform(type(child)) for child in children):
                return 0
        if (
            self._tracer.counters.words[layout.IS_WORKER]
            and next(module.parameters(), None) is None
        ):
            return self._tracer.slot("transform", type(module).__name__)
        return slot


def is_transform(cls: type) -> bool:
    """Whether a class is of a package of transforms."""
    return any(base.__module__.startswith(TRANSFORM_PACKAGES) for base in cls.__mro__)


def _package(cls: type) -> str:
    home = next(
        base.__module__ for base in cls.__mro__ if base.__module__.startswith(TRANSFORM_PACKAGES)
    )
    return next(package for package in TRANSFORM_PACKAGES if home.startswith(package))


def _patch_interpolate(
    tracer: Tracer, module: ModuleType, is_compiling: Question, is_tracing: Question
) -> None:
    """A resize of images, except inside a model."""
    local = tracer.local

    def wrap(original: Call) -> Call:
        slot = tracer.slot("resize", "torch.nn.functional.interpolate")
        traced = noted(tracer, original, slot, notes.resized_batch)

        def interpolate(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or getattr(local, "in_model", False) or is_tracing():
                return original(*args, **kwargs)
            return traced(*args, **kwargs)

        return in_the_place_of(original, interpolate)

    replace(tracer, module, "interpolate", wrap)


def patch_albumentations(tracer: Tracer, module: ModuleType) -> None:
    """Each transform by the name of its class."""

    def wrap(original: Call) -> Call:
        @wraps(original)
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            name = type(self).__name__
            stage = CLASS_STAGES.get(name) or "transform"
            slot = tracer.slot(stage, f"albumentations.{name}")
            entered = tracer.enter(slot)
            try:
                return original(self, *args, **kwargs)
            finally:
                tracer.leave(slot, entered)
                tracer.count(slot, int(stage != "resize"))

        return __call__

    replace(tracer, module, "BasicTransform.__call__", wrap)


def patch_dynamo(tracer: Tracer, module: Any) -> None:
    """Have torch.compile begin at a model's own `forward`, as without this file around it."""
    module.SKIP_DIRS.append(os.path.abspath(__file__))
    module._recompile_re()
