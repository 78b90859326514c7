"""GPU and CPU use, sampled ten times a second from a thread while a pass runs.

GPU figures come from NVML (nvidia-ml-py), CPU use per process from psutil; without a GPU the GPU
lists are absent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pynvml

from wallclock import provenance

_PERIOD_S = 0.1

#: NVML's clock event reasons that mean "slower than it could be", by bit.
_THROTTLE = {
    pynvml.nvmlClocksThrottleReasonSwPowerCap: "power cap",
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "software thermal",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "hardware thermal",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
}


class Telemetry:
    """Samples by name, one list entry every 100 ms.

    `gpu_util` in percent, `gpu_mem_mib`, `gpu_power_w`, `sm_mhz`; `cpu_cores` is the CPU use of
    this process and its children, in cores; `cpu_cores_by_process` the same for each;
    `other_cores` that of all other processes.
    """

    def __init__(self) -> None:
        self.samples: dict[str, list[float]] = {}
        self.throttle_reasons: set[str] = set()
        self.by_process: dict[int, list[float]] = {}
        self._processes: dict[int, psutil.Process] = {}

    def as_values(self) -> dict[str, Any]:
        """All samples as plain data. Processes are numbered from 0, the main one first."""
        return {
            **self.samples,
            "throttle_reasons": sorted(self.throttle_reasons),
            "cpu_cores_by_process": list(self.by_process.values()),
            "period_s": _PERIOD_S,
        }

    def clear(self) -> None:
        """Drop all samples; the next ones count from now."""
        self.samples.clear()
        self.by_process.clear()

    def sample_cpu(self) -> None:
        """Add one sample of every process's CPU use since the last one."""
        main = psutil.Process()
        for process in [main, *main.children(recursive=True)]:
            self._processes.setdefault(process.pid, process)
        total = 0.0
        for pid, process in list(self._processes.items()):
            try:
                cores = process.cpu_percent(None) / 100
            except psutil.NoSuchProcess:
                del self._processes[pid]
                continue
            self.by_process.setdefault(pid, []).append(cores)
            total += cores
        self._add("cpu_cores", total)
        # Load that competes with what is measured.
        everything = psutil.cpu_percent(None) / 100 * (psutil.cpu_count() or 1)
        self._add("other_cores", max(0.0, everything - total))

    def sample_gpu(self, handle: Any) -> None:
        """Add one sample of a GPU."""
        self._add("gpu_util", pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        self._add("gpu_mem_mib", pynvml.nvmlDeviceGetMemoryInfo(handle).used / 2**20)
        self._add("gpu_power_w", pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3)
        self._add("sm_mhz", pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
        reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        self.throttle_reasons |= {name for bit, name in _THROTTLE.items() if reasons & bit}

    def _add(self, name: str, value: float) -> None:
        self.samples.setdefault(name, []).append(round(float(value), 3))


@contextmanager
def recorded(device: str) -> Iterator[Telemetry]:
    """Sample while the block runs."""
    telemetry = Telemetry()
    stop = threading.Event()
    thread = threading.Thread(target=_loop, args=(telemetry, device == "cuda", stop), daemon=True)
    thread.start()
    try:
        yield telemetry
    finally:
        stop.set()
        thread.join()


def _loop(telemetry: Telemetry, gpu: bool, stop: threading.Event) -> None:
    with provenance.nvml_handles() as handles:
        # The first reading of CPU use has no interval.
        telemetry.sample_cpu()
        telemetry.clear()
        due = time.monotonic() + _PERIOD_S
        while not stop.wait(max(due - time.monotonic(), 0)):
            telemetry.sample_cpu()
            for handle in handles[:gpu]:
                telemetry.sample_gpu(handle)
            due += _PERIOD_S
