"""Wraps the functions of `targets` as soon as their modules are imported."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from . import layout
from .patch import patch_module
from .targets import FUNCTIONS, PATCHES
from .tracer import Tracer

#: The tracer of this process, from `install` on.
tracer: Tracer | None = None


class Finder:
    """First on `sys.meta_path`: has the loader of a traced module tell when it is done."""

    def __init__(self, patch: Callable[[ModuleType], None]) -> None:
        self._patch = patch

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for nearly every module; else the spec that the other finders give."""
        if name not in FUNCTIONS and name not in PATCHES:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                self._watch(spec)
                return spec
        return None

    def _watch(self, spec: ModuleSpec) -> None:
        """Patch the module when its loader has run it. The loader stays the module's own."""
        loader: Any = spec.loader
        original = getattr(loader, "exec_module", None)
        if original is None or isinstance(loader, type):
            return

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            original(module)
            self._patch(module)

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader without attributes: this module stays as it is
            return


def install() -> None:
    """Trace this process from now on, and the children that it forks."""
    global tracer
    tries = bool(os.environ.get(layout.PATHS_VARIABLE))
    made = tracer = Tracer(os.environ[layout.FOLDER_VARIABLE], tries=tries)

    patch = partial(patch_module, made)
    sys.meta_path.insert(0, Finder(patch))
    for name in (*FUNCTIONS, *PATCHES):
        if name in sys.modules:
            patch(sys.modules[name])
    os.register_at_fork(after_in_child=made.after_fork)
    if tries:  # after the end of what is counted
        atexit.register(_try_model, made)
    atexit.register(made.finish)
    # Children of multiprocessing end by `os._exit`, which runs no `atexit`; others by `exec`.
    for name in ("_exit", "execv", "execve"):  # the other names of `exec` call these
        setattr(os, name, _replacing(made, getattr(os, name)))
    _sample_around_forks(made)
    made.sampler.start()


def _try_model(tracer: Tracer) -> None:
    if tracer.models is not None:
        from .model_trial import try_model

        try_model(tracer, tracer.models)


def _sample_around_forks(tracer: Tracer) -> None:
    """No thread samples during a fork: Python warns of forks in processes with threads."""
    fork = os.fork

    @wraps(fork)
    def traced() -> int:
        tracer.sampler.stop()
        try:
            return fork()
        finally:
            tracer.sampler.start()  # of the child, in the child

    os.fork = traced


def _replacing(tracer: Tracer, original: Callable[..., Any]) -> Callable[..., Any]:
    """A call that returns only if it fails: else the process has ended."""

    @wraps(original)
    def traced(*args: Any, **kwargs: Any) -> Any:
        tracer.finish()
        try:
            return original(*args, **kwargs)
        finally:
            tracer.counters.words[layout.ENDED] = 0
            tracer.sampler.start()

    return traced
