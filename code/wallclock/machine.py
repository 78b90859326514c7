"""This machine: cores, GPUs and whether torch can use them, and what its processes take."""

import math
import os
import re
import resource
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from wallclock.errors import Unavailable, UserError, import_extra

#: Major version of the CUDA that torch is built for → the oldest driver that runs it:
#: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
_OLDEST_DRIVER = {12: 525, 13: 580}
_OF_CUDA_12 = (
    "install torch from download.pytorch.org/whl/cu128 (in the checkout: make setup LOCK=paper "
    "CUDA=128)"
)
#: Of address space, of which little is memory: all libraries, and what serves a core.
_LIBRARIES_BYTES, _THREAD_BYTES = 3 << 30, 1 << 28
#: Of bf16, in the kernel's list: x86 and ARM.
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "asimdbf16", "bf16", "svebf16"})


def affinity() -> set[int]:
    """The cores that this process may run on: all, where the system has no affinity (macOS)."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def usable_cores() -> int:
    """The cores that this process may use: its affinity, or fewer where a cgroup grants less."""
    available, quota = len(affinity()), cpu_quota()
    return min(available, math.ceil(quota)) if quota else available


def computes_bf16(root: Path = Path("/")) -> bool:
    """Whether the CPU has instructions for bf16; others emulate it. `root`: has `proc`."""
    listed = root / "proc/cpuinfo"
    text = listed.read_text(encoding="utf-8", errors="replace") if listed.exists() else ""
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return flags is not None and not _BF16_FLAGS.isdisjoint(flags[1].split())


def check_address_space() -> None:
    """Raise UserError where `ulimit -v` is too little: a thread that cannot start may hang."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = _LIBRARIES_BYTES + usable_cores() * _THREAD_BYTES
    if limit != resource.RLIM_INFINITY and limit < needed:
        why = f"ulimit -v is {limit / 1e9:.1f} GB, and {needed / 1e9:.1f} GB are needed"
        raise UserError(f"{why}: raise it; a cgroup limits memory itself")


def cpu_quota(root: Path = Path("/")) -> float | None:
    """The cores' worth of CPU time that cgroups, version 1 or 2, grant this process; or None.

    `root`: the folder that holds `proc` and `sys`.
    """
    quotas, listed = [], root / "proc/self/cgroup"
    for line in listed.read_text(encoding="utf-8").splitlines() if listed.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
        mount = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        group = mount / path.lstrip("/")
        parents = [parent for parent in group.parents if parent.is_relative_to(mount)]
        for folder in (group, *parents):
            with suppress(OSError, ValueError):  # without a limit, "max" is no number
                texts = " ".join((folder / name).read_text(encoding="ascii") for name in names)
                quota, period = map(int, texts.split())
                if quota > 0:
                    quotas.append(quota / period)
    return min(quotas, default=None)


def require_linux(what: str) -> None:
    """Raise `Unavailable` where the system is not Linux, whose epoll or /proc something needs."""
    if not sys.platform.startswith("linux"):
        raise Unavailable(f"{what} needs Linux; this system is {sys.platform}")


def shared_memory_bytes(root: Path = Path("/")) -> int | None:
    """The size of /dev/shm, where the loader's processes have their buffers; None: no limit."""
    folder = root / "dev/shm"
    return shutil.disk_usage(folder).total if folder.exists() else None


def busy_s(root: Path = Path("/")) -> float | None:
    """Seconds for which the cores of this process were busy since the machine started, added up.

    With whatever ran on them; None where nothing counts it. `root`: the folder that holds `proc`.
    Fields of /proc/stat: proc_stat(5).
    """
    counters = root / "proc/stat"
    if not counters.exists():
        return None
    cores = {f"cpu{number}" for number in affinity()}
    ticks = 0
    for line in counters.read_text(encoding="ascii").splitlines():
        name, *fields = line.split()
        if name in cores:
            user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, fields)
            ticks += user + nice + system + irq + softirq
    return ticks / os.sysconf("SC_CLK_TCK")


def nvml() -> Any:
    """The module pynvml. Raises UserError: it is not installed."""
    return import_extra("pynvml", "the GPUs of this machine", "embed")


@cache
def gpus() -> list[dict[str, Any]]:
    """Name, memory in GiB and driver of every NVIDIA GPU. Raises UserError: no pynvml."""
    with nvml_handles() as handles:
        return [
            {
                "name": nvml().nvmlDeviceGetName(handle),
                "memory_gib": round(nvml().nvmlDeviceGetMemoryInfo(handle).total / 2**30),
                "driver": nvml().nvmlSystemGetDriverVersion(),
            }
            for handle in handles
        ]


def _visible_gpus(count: int) -> list[str]:
    """The GPUs that CUDA may use, in its order: numbers, or UUIDs as the environment gives them."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return [str(index) for index in range(count)]
    names = []
    for name in map(str.strip, listed.split(",")):
        if not name.startswith("GPU-") and not (name.isdecimal() and int(name) < count):
            break  # CUDA stops at the first that does not exist
        names.append(name)
    return names


@contextmanager
def nvml_handles() -> Iterator[list[Any]]:
    """NVML's handles of the GPUs that CUDA may use, in its order; none where it does not load."""
    library = nvml()
    try:
        library.nvmlInit()
    except library.NVMLError:
        yield []
        return
    try:
        by_number, by_uuid = library.nvmlDeviceGetHandleByIndex, library.nvmlDeviceGetHandleByUUID
        names = _visible_gpus(library.nvmlDeviceGetCount())
        yield [by_number(int(name)) if name.isdecimal() else by_uuid(name) for name in names]
    finally:
        library.nvmlShutdown()


def require_cuda(what: str = "device=cuda") -> None:
    """Raise `Unavailable` if torch sees no CUDA device, with the cause and the fix."""
    import torch

    if torch.cuda.is_available():
        return
    reason = f"{what} needs a CUDA GPU, and torch {torch.__version__} sees no CUDA device"
    present: list[dict[str, Any]] = []
    with suppress(UserError):  # without pynvml there is less to say
        present = gpus()
    if present and torch.version.cuda is None:
        reason += f": it is built without CUDA, and {present[0]['name']} is here; {_OF_CUDA_12}"
    elif present:
        cuda, driver = str(torch.version.cuda), present[0]["driver"]
        oldest = _OLDEST_DRIVER.get(int(cuda.partition(".")[0]), 0)
        if (major := int(driver.partition(".")[0])) < oldest:
            fix = f"update it, or {_OF_CUDA_12}" if major >= _OLDEST_DRIVER[12] else "update it"
            reason += f": built for CUDA {cuda}, it needs driver {oldest}; here: {driver}; {fix}"
    raise Unavailable(reason)


@cache
def libjpeg_turbo_version(path: str) -> str:
    """The version in the copyright string of a compiled libjpeg-turbo, or 'unknown'."""
    match = None
    with suppress(OSError):
        text = re.compile(rb"libjpeg-turbo version (\d+\.\d+(?:\.\d+)?)")
        match = text.search(Path(path).read_bytes())
    return match[1].decode() if match else "unknown"
