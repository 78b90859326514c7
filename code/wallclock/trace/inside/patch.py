"""Replaces functions of a module by counted ones."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from . import notes
from .targets import FUNCTIONS, PATCHES, Row
from .tracer import Call, Tracer, disguise_as


def patch_module(tracer: Tracer, module: ModuleType) -> None:
    """Wrap what a module has of its rows of `targets`, and apply its patch.

    What the module's version lacks is left out.
    """
    name = module.__name__
    for row in FUNCTIONS.get(name, ()):
        _guarded(tracer, f"{name}.{row.path}", _wrap_row, module, row)
    if name in PATCHES:
        _guarded(tracer, name, _apply, module, *PATCHES[name].split(":"))


def _guarded(tracer: Tracer, what: str, patch: Call, *arguments: Any) -> None:
    try:
        patch(tracer, *arguments)
    except Exception as error:  # noqa: BLE001 - the user's program must go on
        tracer.complain(what, error)


def _apply(tracer: Tracer, module: ModuleType, ours: str, function: str) -> None:
    getattr(import_module(f".{ours}", __package__), function)(tracer, module)


def _wrap_row(tracer: Tracer, module: ModuleType, row: Row) -> None:
    name = row.name or f"{module.__name__}.{row.path}"

    def wrap(function: Call) -> Call:
        slot = tracer.slot(row.stage, name)
        if not row.note:
            return tracer.timed(function, slot)
        return noted(tracer, function, slot, getattr(notes, row.note))

    replace(tracer, module, row.path, wrap)


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


def noted(tracer: Tracer, function: Call, slot: int, note: notes.Note) -> Call:
    """`function`, counted, with a note of the images that a call took.

    An image counts once where a function that counts images calls another one of its stage.
    """
    enter, leave, counting = tracer.enter, tracer.leave, tracer.counting
    stage, done = tracer.stage_of(slot), notes.Done
    counting[slot] = stage

    def traced(*args: Any, **kwargs: Any) -> Any:
        entered = enter(slot)
        try:
            result = function(*args, **kwargs)
        finally:
            leave(slot, entered)
        if counting.get(entered[0]) != stage:
            try:
                note(tracer, done(slot, entered[1], args, kwargs, result))
            except Exception as error:  # noqa: BLE001 - an unusual argument is no fault of the user
                tracer.complain(f"images of {function!r}", error)
        return result

    return disguise_as(function, traced)
