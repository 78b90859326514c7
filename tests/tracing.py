"""Which functions of the packages run while a clock does: threads, forks and commands included.

A command that is started as `python -m MODULE …` runs the same module with the trace switched on.
"""

import inspect
import os
import runpy
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[1]
CODE = ROOT / "code"
_PREFIX = f"{CODE}/"
_RUN = (
    f"import sys; sys.path[:0] = [{str(CODE)!r}, {str(ROOT)!r}]; "
    "from tests import tracing; tracing.run_module()"
)
#: A line of the log that is of no function: a clock is read.
_CLOCK = "clock"
_CLOCKS = (
    time.monotonic,
    time.perf_counter,
    time.perf_counter_ns,
    time.process_time_ns,
    time.thread_time_ns,
    time.time,
)


@contextmanager
def functions_called(log: Path) -> Iterator[Mapping[str, set[str]]]:
    """Note in `log` what the block calls; afterwards the mapping has it.

    File relative to `CODE` → names of its functions, of all calls between the first time that code
    there reads a clock and the last time; of a block that reads none, all. Threads that were there
    before are not seen.
    """
    called: dict[str, set[str]] = {}
    _start(log)
    try:
        with patch("subprocess.Popen", _traced_commands(log)):
            yield called
    finally:
        for switch in (sys.settrace, sys.setprofile, threading.settrace, threading.setprofile):
            switch(None)
    lines = log.read_text(encoding="utf-8").splitlines()
    reads = [at for at, line in enumerate(lines) if line == _CLOCK] or [0, len(lines)]
    for line in lines[reads[0] : reads[-1]]:
        if line != _CLOCK:
            file, name = line.split("\t")
            called.setdefault(file, set()).add(name)


def _start(log: Path) -> None:
    """From now on append to `log` each function that is called, and each time a clock is read.

    A function once in a process, and once more where the clock starts. Modules and classes have no
    function of their own: their bodies run when they are imported.
    """
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    seen: dict[int, CodeType] = {}
    is_timed = False

    def note(code: CodeType) -> None:
        if id(code) in seen:
            return
        seen[id(code)] = code  # which keeps it, so that no other gets its number
        if code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(_PREFIX):
            file = code.co_filename.removeprefix(_PREFIX)
            os.write(handle, f"{file}\t{code.co_qualname}\n".encode())

    def note_call(frame: FrameType, event: str, argument: Any) -> None:
        note(frame.f_code)

    def note_clock(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal is_timed
        in_packages = frame.f_code.co_filename.startswith(_PREFIX)
        if event == "c_call" and argument in _CLOCKS and in_packages:
            os.write(handle, f"{_CLOCK}\n".encode())
            if not is_timed:
                is_timed = True
                seen.clear()
                # What was called before and goes on.
                caller: FrameType | None = frame
                while caller is not None:
                    note(caller.f_code)
                    caller = caller.f_back

    threading.settrace(note_call)
    threading.setprofile(note_clock)
    sys.settrace(note_call)
    sys.setprofile(note_clock)


def run_module() -> None:
    """Run the module of `sys.argv`, LOG MODULE ARGUMENT…, as `python -m` does, and trace it."""
    _, log, module, *arguments = sys.argv
    sys.argv = [module, *arguments]
    subprocess.Popen = _traced_commands(Path(log))  # type: ignore[misc, assignment]
    _start(Path(log))
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _traced_commands(log: Path) -> type[subprocess.Popen[Any]]:
    """`Popen`, which switches the trace on in a command that is a module."""

    class Command(subprocess.Popen[Any]):
        def __init__(self, args: Any, *others: Any, **options: Any) -> None:
            if list(args[:2]) == [sys.executable, "-m"]:
                args = [sys.executable, "-c", _RUN, str(log), *args[2:]]
            super().__init__(args, *others, **options)

    return Command
