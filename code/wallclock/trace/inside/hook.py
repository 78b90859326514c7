"""Wraps the functions of `targets` as soon as their modules are imported."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from . import layout
from .patch import interpose, patch_module
from .targets import FUNCTIONS, PATCHES
from .tracer import Call, Tracer


class Finder:
    """First on `sys.meta_path`: has the loader of a traced module tell when it is done."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for nearly every module; else the spec that the other finders give."""
        if name not in FUNCTIONS and name not in PATCHES:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec: ModuleSpec | None = find(name, path, target)
                if spec is not None:
                    self._watch(spec.loader)
                    return spec
        return None

    def _watch(self, loader: Any) -> None:
        """Patch the module when its loader has run it. The loader stays the module's own."""
        original: Any = getattr(loader, "exec_module", None)

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            original(module)
            patch_module(self._tracer, module)

        if original is not None and not isinstance(loader, type):
            with suppress(AttributeError):  # a loader without attributes: it stays as it is
                loader.exec_module = exec_module


def install() -> None:
    """Trace this process from now on, and the children that it forks."""
    tries = bool(os.environ.get(layout.PATHS_VARIABLE))
    tracer = Tracer(os.environ[layout.FOLDER_VARIABLE], tries=tries)
    sys.meta_path.insert(0, Finder(tracer))
    for name in (*FUNCTIONS, *PATCHES):
        if name in sys.modules:
            patch_module(tracer, sys.modules[name])
    os.register_at_fork(after_in_child=tracer.after_fork)
    _trace_ends(tracer)

    def fork(original: Call) -> Any:
        tracer.sampler.stop()  # Python warns of forks in processes with threads
        try:
            return original()
        finally:
            tracer.sampler.start()  # of the child, in the child

    interpose(tracer, os, "fork", fork)
    tracer.sampler.start()


def _trace_ends(tracer: Tracer) -> None:
    """Note when the program's own code ends: to end libraries, as torch, may take longer."""

    def leave() -> None:
        if not tracer.counters.words[layout.ENDED]:
            tracer.finish()
            if tracer.tries:  # after the end of what is counted
                import_module(".model_trial", __package__).try_model(tracer)

    def register(original: Call, function: Call, *args: Any, **kwargs: Any) -> Call:
        atexit.unregister(leave)
        original(function, *args, **kwargs)
        original(leave)  # the last one is called first
        return function

    def replace(original: Call, *args: Any, **kwargs: Any) -> Any:
        tracer.finish()
        try:
            return original(*args, **kwargs)  # only if it fails: else the process has ended
        finally:
            tracer.counters.words[layout.ENDED] = 0
            tracer.sampler.start()

    atexit.register(leave)
    interpose(tracer, atexit, "register", register)
    # Children of multiprocessing end by `os._exit`, which runs no `atexit`; others by `exec`.
    for name in ("_exit", "execv", "execve"):  # the other names of `exec` call these
        interpose(tracer, os, name, replace)
