"""Runs the traced program: same input, output and signals as without the trace."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wallclock.machine import busy_s
from wallclock.trace.inside import layout

#: Signals that are sent on to the program. Those of a terminal it gets by itself.
FORWARDED = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
#: Python ignores these in itself; a program gets them as from a shell.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
#: siginfo's code of a signal that the kernel sent, to the terminal's whole process group.
_BY_KERNEL = 0x80


@dataclass(frozen=True)
class Ended:
    """How the program ran, as its parent saw it; times of the monotonic clock.

    `status`: as `os.waitstatus_to_exitcode` gives it, -n for signal n. `cpu_s`: of
    the program and the processes that it waited for; `busy_s`: of the machine's cores meanwhile.
    """

    command: tuple[str, ...]
    pid: int
    status: int
    started_ns: int
    ended_ns: int
    cpu_s: float = 0.0
    busy_s: float = 0.0


def run(words: Sequence[str], folder: Path, *, records_paths: bool = False) -> Ended:
    """Run `python words…` with counters in `folder` until it ends."""
    bootstrap = str(Path(layout.__file__).parent / "bootstrap")
    # An empty entry would be the current folder.
    paths = filter(None, [bootstrap, os.environ.get("PYTHONPATH")])
    environment = {"PYTHONPATH": os.pathsep.join(paths), layout.FOLDER_VARIABLE: str(folder)}
    if records_paths:
        environment[layout.PATHS_VARIABLE] = "1"
    awaited = {signal.SIGCHLD, *FORWARDED}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    try:
        busy, used = busy_s() or 0.0, sum(os.times()[2:4])
        started_ns = time.perf_counter_ns()
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, *words],
            {**os.environ, **environment},
            setsigmask=before,
            setsigdef=_RESTORED,
        )
        status = _attend(pid, awaited)
        ended_ns = time.perf_counter_ns()
        used, busy = sum(os.times()[2:4]) - used, (busy_s() or 0.0) - busy
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return Ended(tuple(words), pid, status, started_ns, ended_ns, used, busy)


def _attend(pid: int, awaited: set[signal.Signals]) -> int:
    """Send signals on until the program ends; its status."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        # Woken once a minute in any case: SIGCHLD may have come before.
        arrived = signal.sigtimedwait(awaited, 60)
        if arrived and arrived.si_signo != signal.SIGCHLD and arrived.si_code != _BY_KERNEL:
            os.kill(pid, arrived.si_signo)
