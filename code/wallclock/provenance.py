"""What a measurement ran on: machine, libraries, code, and the state of the moment.

`identity` is what a result depends on and therefore part of every cell's key; `moment` is what
merely has to be written down. Neither imports torch: the runner asks for both.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import Any

import psutil
import pynvml

from wallclock import native
from wallclock.files import digest_of, sha256_file

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent.parent

#: The parts of the package that a timing depends on.
_MEASURED_CODE = (
    *("checkpoint.py", "clock.py", "native.py", "spec.py", "summary.py", "thread_counts.py"),
    *("corpus", "stages", "engines", "measure", "run/worker.py"),
)

_LIBRARIES = [
    "torch",
    "transformers",
    "numpy",
    "pillow",
    "opencv-python-headless",
    "PyTurboJPEG",
    "simplejpeg",
    "onnx",
    "onnxscript",
    "onnxruntime-gpu",
    "pyarrow",
    "lmdb",
]


@cache
def identity() -> dict[str, Any]:
    """Machine, library versions and code digest: equal means that results may be compared and reused."""
    return {"machine": machine(), "versions": versions(), "code": code_digest()}


@cache
def machine() -> dict[str, Any]:
    """CPU model, usable cores, memory in GiB, GPUs, kernel, Python."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "gpus": gpus(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


@cache
def gpus() -> list[dict[str, Any]]:
    """Name, memory in GiB and driver of every NVIDIA GPU; empty where there is none."""
    with _nvml() as found:
        if not found:
            return []
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        driver = pynvml.nvmlSystemGetDriverVersion()
        return [
            {
                "name": pynvml.nvmlDeviceGetName(handle),
                "memory_gib": round(pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30),
                "driver": driver,
            }
            for handle in handles
        ]


@cache
def versions() -> dict[str, str]:
    """Versions of the libraries on the measured path, each libjpeg-turbo's too."""
    found = {name: metadata.version(name) for name in _LIBRARIES}
    shared = native.find_libturbojpeg()
    found["libturbojpeg"] = (
        native.libjpeg_turbo_version(os.path.realpath(shared)) if shared else "absent"
    )
    found["libjpeg-turbo in pillow"] = _bundled("PIL", "pillow.libs", "libjpeg*")
    found["libjpeg-turbo in opencv"] = _opencv_jpeg()
    found["libjpeg-turbo in simplejpeg"] = _bundled("simplejpeg", "simplejpeg", "_jpeg*.so")
    return found


@cache
def code_digest() -> str:
    """sha256 over the source of everything that is timed: a changed stage never reuses an old result."""
    files = sorted(path for part in _MEASURED_CODE for path in _sources(PACKAGE / part))
    return digest_of([[str(path.relative_to(PACKAGE)), sha256_file(path)] for path in files])


def current_state() -> dict[str, Any]:
    """The state of the machine now: time, load, clocks, temperatures, the commit."""
    return {
        "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "cpu_mhz": _cpu_mhz(),
        "temperature_c": _temperatures(),
        "gpu": _gpu_state(),
        "git": git_state(),
    }


@cache
def git_state() -> dict[str, Any]:
    """Commit and whether the tree differs from it; empty outside a checkout."""
    try:
        commit = _git("rev-parse", "HEAD")
        return {
            "commit": commit,
            "modified": bool(_git("status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.CalledProcessError):
        return {}


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _sources(path: Path) -> list[Path]:
    return [path] if path.is_file() else list(path.rglob("*.py"))


def _bundled(module: str, folder: str, pattern: str) -> str:
    spec = util.find_spec(module)
    if spec is None or spec.origin is None:
        return "absent"
    site = Path(spec.origin).parent.parent
    found = sorted((site / folder).glob(pattern))
    return native.libjpeg_turbo_version(str(found[0])) if found else "unknown"


def _opencv_jpeg() -> str:
    import cv2

    found = re.search(r"JPEG:.*\(ver (\d+\.\d+(?:\.\d+)?)", cv2.getBuildInformation())
    return found.group(1) if found else "unknown"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown CPU"
    names = (
        line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "Model"))
    )
    return next(names, platform.processor() or "unknown CPU")


def _cpu_mhz() -> float | None:
    frequency = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    return round(frequency.current) if frequency else None


def _temperatures() -> dict[str, float]:
    sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    return {
        name: max(entry.current for entry in entries)
        for name, entries in sensors.items()
        if entries
    }


def _gpu_state() -> list[dict[str, Any]]:
    with _nvml() as found:
        if not found:
            return []
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [
            {
                "sm_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
                "memory_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
                "temperature_c": pynvml.nvmlDeviceGetTemperature(
                    handle, pynvml.NVML_TEMPERATURE_GPU
                ),
            }
            for handle in handles
        ]


@contextmanager
def _nvml() -> Iterator[bool]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        pynvml.nvmlShutdown()
