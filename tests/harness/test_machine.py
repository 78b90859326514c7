"""What is noted of the machine while a cell runs: provenance, telemetry, disturbance, cores."""

import importlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import disturbance, provenance, telemetry
from harness.measures import PSNR_CEILING_DB, psnr_db
from harness.pinned import choose
from tests.conftest import ROOT
from wallclock import machine
from wallclock.errors import UserError
from wallclock.machine import usable_cores
from wallclock.trace.command import trace

# --- provenance -----------------------------------------------------------------------------------


V2, V1 = "0::/job/part\n", "3:cpuset:/\n2:cpu,cpuacct:/job\n0::/\n"
PERIOD, QUOTA = "cpu/job/cpu.cfs_period_us", "cpu/job/cpu.cfs_quota_us"


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        (V2, {"job/cpu.max": "150000 100000\n", "job/part/cpu.max": "max 100000\n"}, 1.5),
        (V2, {"job/cpu.max": "150000 100000\n", "job/part/cpu.max": "50000 100000\n"}, 0.5),
        (V2, {"job/part/cpu.max": "max 100000\n"}, None),
        (V1, {PERIOD: "100000", QUOTA: "250000"}, 2.5),
        (V1, {PERIOD: "100000", QUOTA: "-1"}, None),
        ("", {}, None),
    ],
)
def test_cgroup_quota(
    groups: str,
    files: dict[str, str],
    quota: float | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in (files | {"proc/self/cgroup": groups}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert machine.cpu_quota(tmp_path) == quota
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    usable = {1.5: 2, 0.5: 1, 2.5: 3, None: 8}
    assert machine.usable_cores() == usable[quota]


def test_what_only_linux_has_is_done_without_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a Mac, which has no /proc either."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(machine, "cpu_quota", lambda: None)
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert machine.usable_cores() == 12
    assert machine.busy_s(Path("nowhere")) is None
    assert machine.shared_memory_bytes(Path("nowhere")) is None
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delitem(sys.modules, "wallclock.fetch.transfers", raising=False)
    with pytest.raises(UserError, match="a URL or a bucket needs Linux; this system is darwin"):
        importlib.import_module("wallclock.fetch.transfers")
    with pytest.raises(UserError, match="wallclock trace needs Linux"):
        trace([__file__])


def test_variables_that_matter_are_part_of_the_key() -> None:
    matter = ["CUDA_VISIBLE_DEVICES", "GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_ARENA_MAX"]
    matter += ["NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "PILLOW_BLOCKS_MAX", "PYTORCH_ALLOC_CONF"]
    others = ["CUDA_HOME", "HOME", "LD_LIBRARY_PATH", "MY_OMP_X", "PATH", "TORCH_HOME"]
    assert list(provenance.variables(dict.fromkeys([*others, *matter], "1"))) == matter
    assert provenance.machine().keys() >= {"variables", "kernel", "libc", "cpu_quota"}
    identity = provenance.identity(("wallclock.errors",))
    assert identity["machine"] == provenance.machine()
    assert identity.keys() == {"machine", "versions", "code"}


def test_a_package_stands_for_its_modules() -> None:
    files = provenance.source_files(["wallclock.stages.decode", "wallclock.errors"])
    assert {"wallclock/errors.py", "wallclock/stages/decode/pil.py"} < {*files}
    assert {*provenance.source_files(["wallclock.errors"])} == {"wallclock/errors.py"}


# --- telemetry ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["0", "1", "2"]),
        ("2,0", ["2", "0"]),
        ("GPU-4f1c, 1", ["GPU-4f1c", "1"]),
        ("1,7,0", ["1"]),
        ("", []),
    ],
)
def test_nvml_sees_the_gpus_that_cuda_sees(
    visible: str | None, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine._visible_gpus(3) == expected


def test_a_pass_shorter_than_a_sample() -> None:
    """The sampler may find `begin` and `end` in its pipe at once, and workers keep that open."""
    with telemetry.recorded("cpu") as recording:
        sampler = recording._sampler
        assert sampler.stdin is not None
        assert sampler.stdout is not None
        kept_open = os.dup(sampler.stdin.fileno())
        try:
            sampler.stdin.write(telemetry._BEGIN + telemetry._END)
            sampler.stdin.flush()
            sampler.wait(30)
            recording.values |= json.loads(sampler.stdout.read())
        finally:
            os.close(kept_open)
    assert recording.values["throttle_reasons"] == []


# --- disturbance ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("readings", "kept", "discarded"),
    [
        ([0.1, 0.0], 0.1, None),
        ([0.98, 0.05, 0.0], 0.05, [0.98]),
        ([0.3, 0.98, 0.02, 0.0], 0.02, [0.3, 0.98]),
        ([0.98, 0.2, 0.4, 0.0], 0.2, [0.98, 0.4]),
    ],
)
def test_a_disturbed_pass_is_taken_again(
    readings: list[float], kept: float, discarded: list[float] | None
) -> None:
    """At most three passes; the calmest one's result stands, with its own reading."""
    coming = iter(readings)

    def take_pass(values: dict[str, Any]) -> str:
        values["other_cores"] = next(coming)
        return f"with {values['other_cores']}"

    values = {"n": 3}
    assert disturbance.take_calmest(take_pass, values, cores=2) == f"with {kept}"
    expected = {"n": 3, "other_cores": kept}
    assert values == expected | ({"discarded_other_cores": discarded} if discarded else {})
    assert disturbance.is_disturbed(values, 2) == (kept > 0.1)
    assert not disturbance.is_disturbed(values, 64), "of many cores it is little"


# --- pinned ---------------------------------------------------------------------------------------


def test_each_cores_first_thread_comes_first() -> None:
    """CPUs 0 and 4, 1 and 5, ... are the two threads of a core; 3 may not be used."""
    pairs = {cpu: (cpu % 4, cpu % 4 + 4) for cpu in range(8)}
    allowed = {0, 1, 2, 4, 5, 6, 7}
    assert choose(4, allowed, pairs.__getitem__) == [0, 1, 2, 7]
    assert choose(7, allowed, pairs.__getitem__) == [0, 1, 2, 7, 4, 5, 6]
    assert choose(1, {6}, pairs.__getitem__) == [6]
    with pytest.raises(ValueError, match="8 cores are asked for, and 7 may be used"):
        choose(8, allowed, pairs.__getitem__)


COUNT = "import os; from wallclock.machine import usable_cores; print(usable_cores(), os.getpid())"
WITH_A_CHILD = f"import subprocess, sys; {COUNT}; sys.stdout.flush(); "
WITH_A_CHILD += f"subprocess.run([sys.executable, '-c', {COUNT!r}])"


def test_a_pinned_process_and_its_children_have_so_many_cores() -> None:
    allowed = os.sched_getaffinity(0)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "code")}
    for n in {1, min(2, usable_cores())}:
        command = [sys.executable, "-m", "harness.pinned", str(n), "-c", WITH_A_CHILD]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as run:
            lines = [line.split() for line in run.communicate()[0].splitlines()]
        assert [cores for cores, _ in lines] == [str(n)] * 2
        assert lines[0][1] == str(run.pid), "the process stays the same"
    assert os.sched_getaffinity(0) == allowed


# --- measures -------------------------------------------------------------------------------------


def test_psnr_of_known_images() -> None:
    black = np.zeros((4, 4, 3), np.uint8)
    assert psnr_db(black, black) == PSNR_CEILING_DB
    assert psnr_db(black, black + np.uint8(255)) == pytest.approx(0)
    assert psnr_db(black + np.uint8(1), black) == pytest.approx(20 * math.log10(255))
    one_off = black.copy()
    one_off[0, 0, 0] = 200  # no wrap-around below zero, either way round
    expected = 10 * math.log10(255**2 / (200**2 / 48))
    assert psnr_db(one_off, black) == pytest.approx(expected)
    assert psnr_db(black, one_off) == pytest.approx(expected)
