"""Runs the traced program: same input, output and signals as without the trace."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wallclock.machine import busy_s, swapped_bytes
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

    `status`: as `os.waitstatus_to_exitcode` gives it, -n for signal n. `swapped_bytes`: to and from
    the machine's swap meanwhile. `cpu_s`: of the program and the processes that it waited for;
    `busy_s`: of the machine's cores meanwhile, None where that is unknown.
    """

    command: tuple[str, ...]
    pid: int
    status: int
    started_ns: int
    ended_ns: int
    swapped_bytes: int = 0
    cpu_s: float = 0.0
    busy_s: float | None = None

    @property
    def exit_code(self) -> int:
        """As a shell reports it: 128 + n for signal n."""
        return self.status if self.status >= 0 else 128 - self.status


def run(words: Sequence[str], folder: Path, *, records_paths: bool = False) -> Ended:
    """Run `python words…` with counters in `folder` until it ends."""
    awaited = {signal.SIGCHLD, *FORWARDED}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    try:
        swapped, busy, used = swapped_bytes(), busy_s(), _cpu_of_children_s()
        started_ns = time.perf_counter_ns()
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, *words],
            _environment(folder, records_paths=records_paths),
            setsigmask=before,
            setsigdef=_RESTORED,
        )
        status = _attend(pid, awaited)
        ended_ns = time.perf_counter_ns()
        swapped = swapped_bytes() - swapped
        used, busy_after = _cpu_of_children_s() - used, busy_s()
        busy = None if busy is None or busy_after is None else busy_after - busy
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return Ended(tuple(words), pid, status, started_ns, ended_ns, swapped, used, busy)


def _cpu_of_children_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _environment(folder: Path, *, records_paths: bool) -> dict[str, str]:
    bootstrap = str(Path(layout.__file__).parent / "bootstrap")
    # An empty entry would be the current folder.
    paths = [bootstrap, os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        layout.FOLDER_VARIABLE: str(folder),
        **({layout.PATHS_VARIABLE: "1"} if records_paths else {}),
    }


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
