"""Runs Python on some of the cores that this process may use: `python -m harness.pinned N words…`.

The affinity is set before anything else is imported: libraries size their thread pools by it, and
`wallclock.machine.usable_cores` counts it. Processes that are started later have it, too.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")


def siblings_of(cpu: int, cpus: Path = _CPUS) -> tuple[int, ...]:
    """The hardware threads of a CPU's core; the CPU alone where the kernel does not say."""
    try:
        text = (cpus / f"cpu{cpu}/topology/thread_siblings_list").read_text(encoding="ascii")
    except OSError:
        return (cpu,)
    siblings: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        siblings += range(int(first), int(last or first) + 1)
    return tuple(sorted(siblings))


def choose(
    n: int, allowed: Iterable[int], siblings: Callable[[int], tuple[int, ...]] = siblings_of
) -> list[int]:
    """n of the allowed CPUs: the first hardware thread of each core, then the second ones.

    Raises ValueError: there are fewer.
    """
    by_core: dict[tuple[int, ...], list[int]] = {}
    for cpu in sorted(allowed):
        by_core.setdefault(siblings(cpu), []).append(cpu)
    ranked = [(rank, cpu) for threads in by_core.values() for rank, cpu in enumerate(threads)]
    if n > len(ranked):
        raise ValueError(f"{n} cores are asked for, and {len(ranked)} may be used")
    return [cpu for _, cpu in sorted(ranked)[:n]]


def main(words: list[str]) -> None:
    """Become `python words…` on so many cores; the process id stays."""
    n, *rest = words
    os.sched_setaffinity(0, choose(int(n), os.sched_getaffinity(0)))
    os.execv(sys.executable, [sys.executable, *rest])


if __name__ == "__main__":
    main(sys.argv[1:])
