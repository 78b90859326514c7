"""Replaces functions of a module by counted ones."""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any

from . import notes
from .targets import FUNCTIONS, PATCHES, Rows, name_of
from .tracer import Call, Tracer


def patch_module(tracer: Tracer, module: ModuleType) -> None:
    """Wrap what a module has of its functions in `targets`, and apply its patch."""
    name = module.__name__
    for rows in FUNCTIONS.get(name, ()):
        for path in rows.names.split():
            _guarded(tracer, f"{name}.{path}", _wrap, module, path, rows)
    if name in PATCHES:
        _guarded(tracer, name, _apply, module, *PATCHES[name].split(":"))


def _guarded(tracer: Tracer, what: str, patch: Call, *arguments: Any) -> None:
    try:
        patch(tracer, *arguments)
    except Exception as error:  # noqa: BLE001 - the user's program must go on
        tracer.complain(what, error)


def _apply(tracer: Tracer, module: ModuleType, ours: str, function: str) -> None:
    getattr(import_module(f".{ours}", __package__), function)(tracer, module)


def _wrap(tracer: Tracer, module: ModuleType, path: str, rows: Rows) -> None:
    def wrap(function: Call) -> Call:
        slot = tracer.slot(rows.stage, name_of(module.__name__, path))
        return tracer.timed(function, slot, getattr(notes, rows.note) if rows.note else None)

    replace(tracer, module, path, wrap)


def replace(tracer: Tracer, module: Any, path: str, wrap: Callable[[Call], Call]) -> None:
    """Put `wrap` of a function in its place; `path`: `function` or `Class.method`.

    Nothing happens where it does not exist, where its class inherits it, or where it is wrapped.
    """
    *owners, name = path.split(".")
    owner = module
    for step in owners:
        owner = getattr(owner, step, None)
    is_class = isinstance(owner, type)
    original = vars(owner).get(name) if is_class else getattr(owner, name, None)
    if original is None or id(original) in tracer.made:
        return
    if isinstance(original, (staticmethod, classmethod)):
        replaced: Any = type(original)(wrap(original.__func__))
    else:
        replaced = wrap(original)
    tracer.made[id(replaced)] = replaced
    setattr(owner, name, replaced)


def interpose(tracer: Tracer, module: Any, path: str, ours: Call) -> None:
    """Have `ours` called in the place of a function, which it is given first."""

    def wrap(original: Call) -> Call:
        @wraps(original)
        def traced(*args: Any, **kwargs: Any) -> Any:
            return ours(original, *args, **kwargs)

        return traced

    replace(tracer, module, path, wrap)
