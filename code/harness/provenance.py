"""What a measurement ran on: machine, libraries, code, and the machine's current state.

`identity` is what a result depends on and therefore part of a cell's key; `current_state` is for
the record only. Neither imports torch: the runner asks for both.
"""

import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import Any

import psutil
import pynvml as nvml

from harness import native
from harness.digests import digest_of
from wallclock.files import sha256_file
from wallclock.machine import cpu_quota, gpus, libjpeg_turbo_version, nvml_handles, usable_cores
from wallclock.native import described

#: The folder of the packages, and the checkout's.
CODE = Path(__file__).resolve().parents[1]
ROOT = CODE.parent
#: `PYTHONPATH` of a process that imports them.
IMPORT_PATH = f"{CODE}{os.pathsep}{ROOT}"

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)

#: Environment variables that change how fast the libraries are, or which device they see.
_VARIABLES = re.compile(
    r"(OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|MALLOC|GLIBC|PILLOW|OPENCV|VIPS|DALI|ORT|PYTORCH|NVIDIA_TF32"
    r"|CUBLAS|CUDNN)_\w+|CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|LAUNCH_BLOCKING|MODULE_LOADING)"
    r"|TORCH_(?!HOME)\w+|LD_PRELOAD|PYTHONMALLOC|WALLCLOCK_LIBTURBOJPEG"
)
#: Of `lscpu`, or where that is not installed /proc/cpuinfo: our name → theirs.
_TOPOLOGY = {
    "vendor": "Vendor ID|vendor_id",
    "family": "CPU family|cpu family",
    "model": "Model|model",
    "stepping": "Stepping|stepping",
    "sockets": "Socket.s.",
    "threads_per_core": "Thread.*core",
    "cores_per_socket": "Core.*socket|cpu cores",
    "hypervisor": "Hypervisor vendor",
    "l2": "L2 cache",
    "l3": "L3 cache",
}
#: Instruction sets that the libraries have code for.
_FLAGS = re.compile(r"\b(?:avx\w*|amx\w*|f16c|fma|ssse3|sse4_[12]|asimd\w*|sve\w*|hypervisor)\b")


def identity(timed: tuple[str, ...]) -> dict[str, Any]:
    """Machine, library versions and digest of the timed code: equal ones may reuse a result.

    Args:
        timed: module and package names, as `code_digest` takes them.
    """
    return {"machine": machine(), "versions": versions(), "code": code_digest(timed)}


def lasting(identity: Mapping[str, Any]) -> dict[str, Any]:
    """An identity without what an unattended upgrade changes during a run: kernel and driver."""
    machine = {name: value for name, value in identity["machine"].items() if name != "kernel"}
    machine["gpus"] = [
        {name: value for name, value in gpu.items() if name != "driver"} for gpu in machine["gpus"]
    ]
    return {**identity, "machine": machine}


@cache
def machine() -> dict[str, Any]:
    """CPU, usable cores, memory in GiB, GPUs, kernel, libc, Python, and variables that matter."""
    cpu = re.search(r"^(?:model name|Model)[^:]*:(.*)", _cpuinfo(), re.MULTILINE)
    return {
        "cpu": cpu[1].strip() if cpu else platform.processor() or "unknown CPU",
        "topology": topology(),
        "cores": usable_cores(),
        "cpu_quota": cpu_quota(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "gpus": gpus(),
        "system": f"{platform.system()} {platform.machine()}",
        "kernel": platform.release(),
        "libc": "-".join(platform.libc_ver()),
        "variables": variables(os.environ),
        "python": platform.python_version(),
    }


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Those variables that a measurement depends on, sorted by name."""
    return {name: environment[name] for name in sorted(environment) if _VARIABLES.fullmatch(name)}


def topology(command: str = "lscpu") -> dict[str, str]:
    """Family, model, sockets, caches, hypervisor and instruction sets of the CPU, where known."""
    try:
        english = os.environ | {"LC_ALL": "C"}
        done = subprocess.run([command], capture_output=True, text=True, check=True, env=english)
        text = done.stdout
    except (OSError, subprocess.CalledProcessError):
        text = _cpuinfo()
    values = {}
    for name, theirs in _TOPOLOGY.items():
        match = re.search(rf"^\s*(?:{theirs})\s*:(.*)", text, re.MULTILINE)
        if match:
            values[name] = match[1].strip()
    flags = re.search(r"^\s*(?:flags|features)\s*:(.*)", text, re.MULTILINE | re.IGNORECASE)
    values["flags"] = " ".join(sorted(set(_FLAGS.findall(flags[1] if flags else ""))))
    return values


@cache
def versions() -> dict[str, str]:
    """Versions of all distributions that this one may use, of CUDA's, and libjpeg-turbo's."""
    lock = ROOT / "requirements" / "dev.lock"
    pinned = _PIN.findall(lock.read_text(encoding="utf-8"))
    names = {distribution.name for distribution in metadata.distributions()}
    pinned += sorted(name for name in names if name and name.startswith("nvidia-cu"))
    installed = {}
    for name in pinned:
        with suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    shared = native.find_libturbojpeg()
    turbojpeg = libjpeg_turbo_version(os.path.realpath(shared)) if shared else "absent"
    return installed | {
        "libturbojpeg": turbojpeg,
        "libjpeg-turbo in pillow": _bundled("PIL", "pillow.libs", "libjpeg*"),
        "libjpeg-turbo in opencv": _opencv_jpeg(),
        "libjpeg-turbo in simplejpeg": _bundled("simplejpeg", "simplejpeg", "_jpeg*.so"),
        "native module": described(),
    }


@cache
def code_digest(timed: tuple[str, ...]) -> str:
    """sha256 over the source of what is timed: a changed stage never reuses an old result.

    Raises ValueError as `source_files` does.
    """
    files = source_files(timed)
    return digest_of([[name, sha256_file(files[name])] for name in sorted(files)])


def source_files(timed: Sequence[str]) -> dict[str, Path]:
    """The files of modules and of packages with all their modules, by their paths from `CODE`.

    Those of `experiments`, which lie beside it, by their paths from `ROOT`. Raises ValueError: a
    name is that of no module and no package.
    """
    files: dict[str, Path] = {}
    for name in timed:
        base = ROOT if name.startswith("experiments.") else CODE
        path = base / name.replace(".", "/")
        paths = [*path.rglob("*.py"), *path.rglob("*.[ch]"), path.with_suffix(".py")]
        sources = {file.relative_to(base).as_posix(): file for file in paths if file.is_file()}
        if not sources:
            raise ValueError(f"there is no module {name} under {base}")
        files |= sources
    return files


def utc() -> str:
    """The time now, as `2026-11-24T05:57:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def current_state() -> dict[str, Any]:
    """The state of the machine now: time, load, clocks, temperatures, the commit."""
    frequency = psutil.cpu_freq()
    sensors = psutil.sensors_temperatures()
    return {
        "utc": utc(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "cpu_mhz": round(frequency.current) if frequency else None,
        "temperature_c": {name: max(s.current for s in ss) for name, ss in sensors.items() if ss},
        "gpu": _gpu_state(),
        "git": git_state(),
    }


@cache
def git_state() -> dict[str, Any]:
    """Commit and whether the tree differs from it; empty outside a checkout."""
    try:
        changes = _git("status", "--porcelain", "--untracked-files=no")
        return {"commit": _git("rev-parse", "HEAD"), "modified": bool(changes)}
    except (OSError, subprocess.CalledProcessError):
        return {}


def _git(*arguments: str) -> str:
    # `status` would write the index: a run that is killed meanwhile leaves its lock.
    command = ["git", "--no-optional-locks", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _bundled(module: str, folder: str, pattern: str) -> str:
    spec = util.find_spec(module)
    if spec is None or spec.origin is None:
        return "absent"
    site = Path(spec.origin).parent.parent
    files = sorted((site / folder).glob(pattern))
    return libjpeg_turbo_version(str(files[0])) if files else "unknown"


def _opencv_jpeg() -> str:
    if util.find_spec("cv2") is None:
        return "absent"
    import cv2

    match = re.search(r"JPEG:.*\(ver (\d+\.\d+(?:\.\d+)?)", cv2.getBuildInformation())
    return match.group(1) if match else "unknown"


def _cpuinfo() -> str:
    with suppress(OSError):
        return Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return ""


def _gpu_state() -> list[dict[str, Any]]:
    with nvml_handles() as handles:
        return [
            {
                "sm_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
                "memory_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
                "temperature_c": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            }
            for handle in handles
        ]
