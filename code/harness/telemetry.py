"""GPU and CPU use, sampled ten times a second while a pass runs, by a process of its own.

GPU figures come from NVML (nvidia-ml-py), CPU use per process from psutil; without a GPU the GPU
lists are absent. A thread of the timed process would hold its GIL: psutil reads the whole of /proc
to find a process's children. The sampler, `python -m harness.telemetry`, ends when
told so on standard input, or when that ends, and then prints its samples.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pynvml as nvml

from harness import provenance
from harness.processes import ProcessTree, other_cores_busy
from wallclock.machine import nvml_handles

_PERIOD_S = 0.1
#: What the sampler reads; the end of its input may come late: forked workers hold the pipe too.
_BEGIN, _END = "begin\n", "end\n"

#: NVML's clock event reasons that mean "slower than it could be", by bit.
_THROTTLE = {
    nvml.nvmlClocksThrottleReasonSwPowerCap: "power cap",
    nvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
    nvml.nvmlClocksThrottleReasonSwThermalSlowdown: "software thermal",
    nvml.nvmlClocksThrottleReasonHwThermalSlowdown: "hardware thermal",
    nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
}


class Telemetry:
    """Samples by name, one list entry every 100 ms.

    `gpu_util` in percent, `gpu_mem_mib`, `gpu_power_w`, `sm_mhz`; `cpu_cores` is the CPU use of
    process `pid` and its children but for this one, in cores; `other_cores` that of all other
    processes; `rss_mib` the memory of the first, shared pages in each.
    """

    def __init__(self, pid: int) -> None:
        self._processes = ProcessTree(pid, leave_out=os.getpid())
        self.samples: dict[str, list[float]] = defaultdict(list)
        self._throttled: set[str] = set()

    def as_values(self) -> dict[str, Any]:
        """All samples as plain data."""
        values: dict[str, Any] = {
            name: [round(float(x), 3) for x in samples] for name, samples in self.samples.items()
        }
        values["throttle_reasons"] = sorted(self._throttled)
        return values

    def sample_cpu(self) -> None:
        """Add one sample of the processes' CPU use since the last one."""
        usage = self._processes.sample().values()
        total = sum(used.cpu_cores for used in usage)
        self.samples["cpu_cores"].append(total)
        self.samples["rss_mib"].append(sum(used.rss_mib for used in usage))
        # Load that competes with what is measured.
        self.samples["other_cores"].append(other_cores_busy(total))

    def sample_gpu(self, handle: Any) -> None:
        """Add one sample of a GPU; a reading that it does not support, as a slice, is left out."""
        for name, value in gpu_readings(handle).items():
            self.samples[name].append(value)
        self._throttled |= throttle_reasons(handle)


def gpu_readings(handle: Any) -> dict[str, float]:
    """What one GPU does now: those of these that it supports (a slice lacks some).

    `gpu_util` in percent, `gpu_mem_mib`, `gpu_power_w`, `sm_mhz`.
    """
    sources: dict[str, Callable[[], float]] = {
        "gpu_util": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "gpu_mem_mib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / 2**20,
        "gpu_power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
        "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
    }
    readings = {}
    for name, read in sources.items():
        with suppress(nvml.NVMLError):
            readings[name] = read()
    return readings


def throttle_reasons(handle: Any) -> set[str]:
    """Why a GPU is slower than it could be at this moment; empty also where it does not say."""
    with suppress(nvml.NVMLError):
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return {name for bit, name in _THROTTLE.items() if reasons & bit}
    return set()


class Recording:
    """The sampler of a block. `values`: all samples from `begin` to `end`, or the block's end."""

    def __init__(self, sampler: "subprocess.Popen[str]") -> None:
        self.values: dict[str, Any] = {}
        self._sampler = sampler

    def begin(self) -> None:
        """Count from now; returns at once, so that no loader gets ahead meanwhile."""
        assert self._sampler.stdin is not None
        self._sampler.stdin.write(_BEGIN)
        self._sampler.stdin.flush()

    def end(self) -> None:
        """Take the samples; later calls do nothing."""
        if not self.values:
            self.values |= json.loads(self._sampler.communicate(_END)[0])


@contextmanager
def recorded(device: str) -> Iterator[Recording]:
    """Start a sampler of this process and its children, and wait until it is ready."""
    with subprocess.Popen(
        [sys.executable, "-m", "harness.telemetry", str(os.getpid()), device],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(provenance.CODE)},
    ) as sampler:
        assert sampler.stdout is not None
        sampler.stdout.readline()
        recording = Recording(sampler)
        try:
            yield recording
        finally:
            recording.end()


@contextmanager
def of_gpu(device: str) -> Iterator[dict[str, Any]]:
    """Record a GPU while the block runs; `telemetry` is in what it yields after the block.

    Nothing on another device, where the sampler would take time from what is measured.
    """
    readings: dict[str, Any] = {}
    if device == "cuda":
        with recorded(device) as recording:
            recording.begin()
            yield readings
        readings["telemetry"] = recording.values
    else:
        yield readings


def _sample(pid: int, device: str) -> None:
    """Sample until standard input says so or ends, from the start or its last `begin` on."""
    telemetry = Telemetry(pid)
    commands = sys.stdin.fileno()
    print("ready", flush=True)
    with nvml_handles() as all_handles:
        handles = all_handles if device == "cuda" else []
        while True:
            # The first reading of CPU use has no interval.
            telemetry.sample_cpu()
            telemetry.samples.clear()
            due = time.monotonic() + _PERIOD_S
            while not select.select([commands], [], [], max(due - time.monotonic(), 0))[0]:
                telemetry.sample_cpu()
                for handle in handles[:1]:
                    telemetry.sample_gpu(handle)
                due += _PERIOD_S
            # Not `readline`: of two lines that arrive at once it would keep the second from select.
            if not os.read(commands, select.PIPE_BUF).endswith(_BEGIN.encode()):
                break
    print(json.dumps(telemetry.as_values()))


if __name__ == "__main__":
    _sample(int(sys.argv[1]), sys.argv[2])
