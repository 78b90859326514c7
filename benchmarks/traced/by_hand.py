"""Stages timed by hand, as `docs/profiler.md` shows: a `StageProfiler` per thread.

Each process writes its threads' totals at its end into the folder that BY_HAND names.
"""

import atexit
import json
import multiprocessing
import os
import threading
from multiprocessing import util
from pathlib import Path

from wallclock.clock import OpenStage, StageProfiler

_local = threading.local()
_profilers: dict[int, StageProfiler] = {}
_pid = 0


def stage(name: str) -> OpenStage:
    """The stage of that name, or of several joined by `+`, of the thread that enters it."""
    if _pid != os.getpid():
        _begin_process()
    if getattr(_local, "pid", 0) != _pid:
        _local.pid, _local.profiler = _pid, StageProfiler()
        _profilers[threading.get_ident()] = _local.profiler
    profiler: StageProfiler = _local.profiler
    return profiler.stage(name)


def _begin_process() -> None:
    """Forget what was copied by a fork, and write at this process's end."""
    global _pid
    _pid = os.getpid()
    _profilers.clear()
    if "BY_HAND" not in os.environ:
        return
    # A forked worker of multiprocessing runs finalizers and no atexit.
    util.Finalize(None, _write, exitpriority=1)
    atexit.register(_write)


def _write() -> None:
    is_child = multiprocessing.parent_process() is not None
    threads = [
        {
            "is_main": not is_child and ident == threading.main_thread().ident,
            "seconds": profiler.totals,
            "images": profiler.counts,
        }
        for ident, profiler in _profilers.items()
    ]
    path = Path(os.environ["BY_HAND"]) / f"{os.getpid()}.json"
    path.write_text(json.dumps(threads), encoding="utf-8")
