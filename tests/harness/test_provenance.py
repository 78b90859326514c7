"""What identifies a machine: quota, CPU, variables."""

import resource
from pathlib import Path

import psutil
import pytest

from harness import provenance
from wallclock import machine

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


@pytest.mark.parametrize(("counters", "pages"), [("pswpin 3\npswpout 40\npgpgin 7\n", 43), ("", 0)])
def test_swapped_bytes(counters: str, pages: int, tmp_path: Path) -> None:
    assert machine.swapped_bytes(tmp_path) == 0
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/vmstat").write_text(f"nr_free_pages 5\n{counters}")
    assert machine.swapped_bytes(tmp_path) == pages * resource.getpagesize()
    swap = psutil.swap_memory()
    assert machine.swapped_bytes() >= swap.sin + swap.sout


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
    assert files == sorted(files)
    assert {"wallclock/errors.py", "wallclock/stages/decode/pil.py"} < {*files}
    assert provenance.source_files(["wallclock.errors"]) == ["wallclock/errors.py"]


def test_topology_without_lscpu(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Xeon
stepping\t: 8\nflags\t\t: fpu avx2 amx_int8 hypervisor\n"""
    monkeypatch.setattr(provenance, "_cpuinfo", lambda: text)
    assert provenance.topology("no-such-command") == {
        "vendor": "GenuineIntel",
        "family": "6",
        "model": "143",
        "stepping": "8",
        "flags": "amx_int8 avx2 hypervisor",
    }
