"""`make doctor` on machines that lack something: a line for each problem, with its cure."""

import re
import shutil
from collections import namedtuple
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import torch

from harness import doctor as harness_doctor
from harness import native as libturbojpeg
from paper.__main__ import main
from tests.devices import GPU
from wallclock import machine

T4 = GPU | {"name": "Tesla T4", "driver": "580.65"}
_Usage = namedtuple("_Usage", "total used free")
Capture = pytest.CaptureFixture[str]
JUDGES_ALL = re.compile(r"can judge (\d+) of the paper's \1 numbers")


class Machine:
    """A machine on which all is well, but for what a test changes: a T4 beside 16 cores."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gpu: dict[str, Any] = dict(T4)
        self.cuda, self.ort_cuda, self.sees_gpu = "13.0", "13.0", True
        self.shared_bytes, self.free_bytes, self.gpu_free_bytes = 64 << 30, 100 * 10**9, 15 << 30
        self.throttled = 0
        self.libturbojpeg: str | None = "/usr/lib/libturbojpeg.so.0"
        self.has_native = True
        self._patch = monkeypatch

    def visit(self, out: Path, *words: str) -> int:
        """Run `make doctor` there; its exit status."""
        from onnxruntime.capi import build_and_package_info

        set_attribute = self._patch.setattr
        set_attribute(machine, "gpus", lambda: [self.gpu] if self.gpu else [])
        set_attribute(machine, "usable_cores", lambda: 16)
        set_attribute(machine, "nvml_handles", self._handles)
        set_attribute(
            machine, "nvml", lambda: SimpleNamespace(nvmlDeviceGetMemoryInfo=self._memory)
        )
        set_attribute(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda _: self.throttled)
        set_attribute(torch.cuda, "is_available", lambda: self.sees_gpu)
        set_attribute(torch.version, "cuda", self.cuda)
        set_attribute("onnxruntime.get_available_providers", lambda: ["CUDAExecutionProvider"])
        set_attribute(build_and_package_info, "cuda_version", self.ort_cuda, raising=False)
        set_attribute(libturbojpeg, "find_libturbojpeg", lambda: self.libturbojpeg)
        kernels = "avx2" if self.has_native else "not compiled"
        native = SimpleNamespace(find=lambda: self.has_native, described=lambda: kernels)
        set_attribute("wallclock.doctor.native", native)
        set_attribute(shutil, "disk_usage", self._usage)
        set_attribute(harness_doctor, "_LOOK_S", 0.01)
        set_attribute(harness_doctor, "_OTHER_CORES", 1000)
        return main(["doctor", "--out", str(out), *words])

    @contextmanager
    def _handles(self) -> Any:
        yield ["handle"] if self.gpu else []

    def _memory(self, handle: object) -> Any:
        return SimpleNamespace(free=self.gpu_free_bytes)

    def _usage(self, path: object) -> _Usage:
        size = self.shared_bytes if str(path) == "/dev/shm" else self.free_bytes
        return _Usage(size, 0, size)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.delenv("WALLCLOCK_LIBTURBOJPEG", raising=False)
    return Machine(monkeypatch)


def shown(capsys: Capture) -> str:
    """What was printed, on one line; it fits a screen of 40 lines of 80 characters."""
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("\n") <= 40
    return " ".join(text.split())


def test_a_machine_on_which_all_is_well(there: Machine, tmp_path: Path, capsys: Capture) -> None:
    assert there.visit(tmp_path) == 0
    text = shown(capsys)
    assert "GPU Tesla T4, 16 GiB, driver 580.65 " in text
    assert JUDGES_ALL.search(text)
    assert "needs driver" not in text
    for cure in ("make setup", "docker", "nvidia-smi", "conda", "free some"):
        assert cure not in text


def test_an_old_driver_stops(there: Machine, tmp_path: Path, capsys: Capture) -> None:
    there.gpu["driver"], there.sees_gpu, there.ort_cuda = "535.183.06", False, "12.8"
    assert there.visit(tmp_path) == 1
    text = shown(capsys)
    assert "built for CUDA 13.0, it needs driver 580; here: 535.183.06" in text
    assert "make setup LOCK=paper CUDA=128" in text
    assert "for CUDA 12.8; torch is for 13.0; not run for it: " in text


def test_without_root(there: Machine, tmp_path: Path, capsys: Capture) -> None:
    there.libturbojpeg, there.has_native = None, False
    assert there.visit(tmp_path) == 0, "what can be measured is measured"
    text = shown(capsys)
    assert "libturbojpeg not found; not run for it: 3" in text
    assert "WALLCLOCK_LIBTURBOJPEG=$PWD/turbo/lib/libturbojpeg.so.0" in text
    assert "native module not compiled; " in text
    assert "conda install -c conda-forge c-compiler" in text


def test_a_small_container(there: Machine, tmp_path: Path, capsys: Capture) -> None:
    there.shared_bytes, there.free_bytes = 64 << 20, 2 * 10**9
    assert there.visit(tmp_path) == 1, "the images have no room"
    text = shown(capsys)
    assert "2.0 GB free" in text
    assert "docker run --shm-size=4g" in text
    assert text.count("/dev/shm") == 1
    assert there.visit(tmp_path, "--profile", "quick") == 0, "generated images have"


def test_a_gpu_that_others_use(there: Machine, tmp_path: Path, capsys: Capture) -> None:
    there.gpu_free_bytes, there.throttled = 1 << 30, pynvml.nvmlClocksThrottleReasonSwPowerCap
    assert there.visit(tmp_path) == 0
    text = shown(capsys)
    assert "GPU memory 1.0 GiB free; not run for it: " in text
    assert "GPU clocks held down: power cap" in text


def test_without_a_gpu(there: Machine, tmp_path: Path, capsys: Capture) -> None:
    there.gpu, there.sees_gpu, there.cuda = {}, False, ""
    assert there.visit(tmp_path, "--profile", "quick") == 0
    text = shown(capsys)
    assert "GPU none" in text
    assert "ONNX Runtime" not in text
    assert not JUDGES_ALL.search(text)
