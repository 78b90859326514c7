"""Thread counts of the libraries, set, then read back; and the cores that there are."""

import math
import os
from contextlib import suppress
from pathlib import Path

from wallclock.spec import Recipe


def usable_cores() -> int:
    """The cores that this process may use: its affinity, or fewer where a cgroup grants less."""
    available, quota = len(os.sched_getaffinity(0)), cpu_quota()
    return min(available, math.ceil(quota)) if quota else available


def cpu_quota(root: Path = Path("/")) -> float | None:
    """The cores' worth of CPU time that cgroups grant this process; None where they do not limit.

    `root`: the folder that holds `proc` and `sys`. Version 2 (`cpu.max`) and 1 (`cpu.cfs_*`), the
    process's own group and those around it.
    """
    quotas, listed = [], root / "proc/self/cgroup"
    for line in listed.read_text(encoding="utf-8").splitlines() if listed.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
        mount = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        group = mount / path.lstrip("/")
        for folder in (group, *(one for one in group.parents if one.is_relative_to(mount))):
            with suppress(OSError, ValueError):  # without a limit, "max" is no number
                texts = " ".join((folder / name).read_text(encoding="ascii") for name in names)
                quota, period = map(int, texts.split())
                quotas += [quota / period] * (quota > 0)
    return min(quotas, default=None)


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
