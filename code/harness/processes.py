"""What processes take; and a pass without the collector."""

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from harness.spec import Recipe


class ProcessUsage(NamedTuple):
    """Cores that a process kept busy since the last sample, and its resident memory in MiB."""

    cpu_cores: float
    rss_mib: float


class ProcessTree:
    """A process, by default this one, and all processes below it, as they are at each call.

    Args:
        leave_out: the id of a process below that does not count, such as the one that samples.
    """

    def __init__(self, pid: int | None = None, *, leave_out: int | None = None) -> None:
        self._main, self._leave_out = psutil.Process(pid), leave_out
        self._sampled: dict[int, Any] = {}

    def __iter__(self) -> Iterator[Any]:
        yield self._main
        below = self._main.children(recursive=True)
        yield from (process for process in below if process.pid != self._leave_out)

    def sample(self) -> dict[int, ProcessUsage]:
        """Process id → its usage since the last call; a new process counts from now.

        Reads /proc once for both values: a second scan would take a millisecond more from what is
        measured.
        """
        for process in self:
            self._sampled.setdefault(process.pid, process)
        usage = {}
        for pid, process in list(self._sampled.items()):
            try:
                cores = process.cpu_percent(None) / 100
                usage[pid] = ProcessUsage(cores, process.memory_info().rss / 2**20)
            except psutil.NoSuchProcess:
                del self._sampled[pid]
        return usage

    def cpu_s(self) -> float:
        """CPU seconds so far, user and system, those of children that ended included."""
        seconds = 0.0
        for process in self:
            with suppress(psutil.NoSuchProcess):
                seconds += sum(process.cpu_times()[:4])
        return seconds

    def rss_mib(self) -> float:
        """Resident memory in MiB; shared pages count in each process."""
        n_bytes = 0
        for process in self:
            with suppress(psutil.NoSuchProcess):
                n_bytes += process.memory_info().rss
        return n_bytes / 2**20

    def pss_mib(self) -> float:
        """Memory in MiB in which a shared page counts once in all. Takes milliseconds."""
        kib = 0
        for process in self:
            with suppress(OSError):
                path = Path(f"/proc/{process.pid}/smaps_rollup")
                kib += int(path.read_text(encoding="ascii").partition("Pss:")[2].split()[0])
        return kib / 1024


def other_cores_busy(own_cores: float) -> float:
    """Cores that all other processes kept busy since the last call, given the tree's own."""
    cores = psutil.cpu_count() or os.cpu_count() or 1
    everything = psutil.cpu_percent(None) / 100 * cores
    return float(max(0.0, everything - own_cores))


def busiest_other(seconds: float = 0.5) -> str:
    """The program that keeps most cores busy now, but for this one and those below it.

    As `python3 (pid 71), 0.9 cores`; empty where none takes a tenth of a core.
    """
    taken = cpu_taken(seconds)
    pid = max(taken, key=taken.__getitem__, default=0)
    if taken.get(pid, 0.0) < 0.1:
        return ""
    with suppress(psutil.NoSuchProcess):
        return f"{psutil.Process(pid).name()} (pid {pid}), {taken[pid]:.1f} cores"
    return ""


def cpu_taken(seconds: float) -> dict[int, float]:
    """Id of each other process, but for those below this one → the cores that it keeps busy."""
    ours = {process.pid for process in ProcessTree()}
    before = _cpu_s_by_pid()
    time.sleep(seconds)
    after = _cpu_s_by_pid()
    return {
        pid: (after[pid] - before[pid]) / seconds for pid in after.keys() & before.keys() - ours
    }


def _cpu_s_by_pid() -> dict[int, float]:
    running = psutil.process_iter(["pid", "cpu_times"])
    return {each.pid: sum(each.info["cpu_times"][:2]) for each in running if each.info["cpu_times"]}


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Collect garbage once, then disable the collector while the block runs."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def set_threads(recipe: Recipe, *, uses_torch: bool) -> dict[str, int]:
    """Set OpenCV to one thread and, if it runs, torch to the recipe's; return what they report.

    OpenCV's own pool would otherwise resize one image on all cores, which flatters a serial run
    and competes with the workers of a parallel one.
    """
    import cv2

    cv2.setNumThreads(1)
    counts = {"opencv_threads": cv2.getNumThreads()}
    if uses_torch:
        import torch

        if recipe.torch_threads:
            torch.set_num_threads(recipe.torch_threads)
        counts["torch_threads"] = torch.get_num_threads()
    return counts
