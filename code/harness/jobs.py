"""A whole job in a process of its own: started, sampled, and timed."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns, thread_time

from harness import provenance

#: Between two samples, at least.
PERIOD_S = 1.0
#: CPU time of sampling, of a core: what is measured needs the cores.
_SHARE = 0.01


@dataclass(frozen=True)
class JobRun:
    """A job's process that has ended.

    `began`: Unix time at its start. `wall_ns`: nanoseconds from there to its end. `status`: of its
    exit. `output`: what it wrote to standard output and standard error.
    """

    began: float
    wall_ns: int
    status: int
    output: str


def run_job(
    command: Sequence[str],
    output: Path,
    sample: Callable[[int], object] = lambda pid: None,
    *,
    own_session: bool = False,
) -> JobRun:
    """Run a command that imports this checkout's packages; return its times and output.

    Args:
        output: the file that gets standard output and standard error while it runs.
        sample: called with the process id from another thread, every second; less often where that
            would take over 1 % of a core.
        own_session: whether the process leads a session, of which nothing survives its end.
    """
    with output.open("w", encoding="utf-8") as file, ThreadPoolExecutor(1) as pool:
        began = time.time()
        start = perf_counter_ns()
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=file,
            env=os.environ | {"PYTHONPATH": provenance.IMPORT_PATH},
            start_new_session=own_session,
        )
        ended = threading.Event()
        sampler = pool.submit(_sample_until, ended, sample, process.pid)
        try:
            # Without a time limit: `wait` with one polls, up to 50 ms late.
            status = process.wait()
            wall_ns = perf_counter_ns() - start
        finally:
            ended.set()
            process.kill()
            process.wait()
            if own_session:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        sampler.result()
    return JobRun(began, wall_ns, status, output.read_text(encoding="utf-8", errors="replace"))


def _sample_until(ended: threading.Event, sample: Callable[[int], object], pid: int) -> None:
    pause_s = PERIOD_S
    while not ended.wait(pause_s):
        began = thread_time()
        sample(pid)
        pause_s = max(PERIOD_S, (thread_time() - began) / _SHARE)
