"""scripts/gpu-reference.sh: pieces in order, in time, a reference after every call; its README.

A Python that only notes what it is asked to do stands for the real one: each piece takes as long as
the test says.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments import contents
from harness import provenance, records
from harness.protocols import registry
from paper import gpu_reference, packing
from tests.conftest import ROOT
from tests.experiments import made

SCRIPT = ROOT / "scripts" / "gpu-reference.sh"
#: Answers the script's questions; every other call is noted, and sleeps as its line in `slow` says.
PYTHON = """#!/usr/bin/env bash
here=$(dirname "$0")
case "$*" in
  "-m paper.gpu_reference gpu") cat "$here/gpu"; exit ;;
  "-m paper.gpu_reference folder") echo "$REFERENCE_NAME"; exit ;;
  "-m paper.gpu_reference order") echo serial t4; exit ;;
  "-c from setuptools"*) exit ;;
  "-c "*"native.described"*) echo "native module: asked" >&2; exit ;;
esac
echo "$*" >>"$here/calls"
while read -r seconds status words; do
  case "$*" in *"$words"*) sleep "$seconds"; exit "$status" ;; esac
done <"$here/slow"
"""

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    path = tmp_path / "python"
    path.write_text(PYTHON, encoding="ascii")
    path.chmod(0o755)
    (tmp_path / "gpu").write_text("Tesla T4\n", encoding="ascii")
    (tmp_path / "slow").write_text("", encoding="ascii")
    (tmp_path / "calls").write_text("", encoding="ascii")
    return path


@pytest.fixture
def call(python: Path, tmp_path: Path) -> Call:
    """The script with few seconds, its records and reference in the test's folder."""

    def run(**variables: str) -> "subprocess.CompletedProcess[str]":
        outside = os.path.relpath(tmp_path / "reference", ROOT / "data" / "reference")
        given = {"PY": str(python), "RECORDS": str(tmp_path / "out"), "REFERENCE_NAME": outside}
        environment: Mapping[str, str] = {**os.environ, "LIMIT": "200", **given, **variables}
        return subprocess.run(
            ["bash", str(SCRIPT)], env=environment, capture_output=True, text=True, check=False
        )

    return run


def calls(tmp_path: Path) -> list[str]:
    """What the pieces were, in short: a file of tests, an experiment, or a module."""
    names = []
    for line in (tmp_path / "calls").read_text(encoding="ascii").splitlines():
        words = line.split()
        if "pytest" in words:
            names.append(words[-1])
        elif "--experiment" in words:
            repeats = next((word for word in words if word.startswith("repeats=")), "")
            names.append(" ".join([words[words.index("--experiment") + 1], repeats]).strip())
        else:
            names.append(" ".join(words[1:3]))
    return names


def test_pieces_in_order(call: Call, tmp_path: Path) -> None:
    done = call()
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-1] == "gpu-reference: done"
    assert ("native module: asked" in done.stderr) == bool(shutil.which("gcc")), "compiled first"
    pieces = calls(tmp_path)
    tests = [name for name in pieces if name.startswith("tests/")]
    assert "tests/wallclock/infer/test_on_device.py" in tests
    assert all((ROOT / name).is_file() for name in tests)
    packing = ["paper.gpu_reference readme"]
    assert pieces == [*tests, *["cores repeats=1"] * 2, "serial", "t4", "cores repeats=3", *packing]
    assert call().returncode == 0
    assert calls(tmp_path) == [*pieces, *packing], "each piece once"


@pytest.mark.slow
def test_a_call_ends_in_time_and_the_next_goes_on(call: Call, tmp_path: Path) -> None:
    (tmp_path / "slow").write_text("30 0 --experiment t4\n", encoding="ascii")
    (tmp_path / "out" / "steps").mkdir(parents=True)
    (tmp_path / "out" / "steps" / "pack-seconds").write_text("0", encoding="ascii")
    done = call(LIMIT="36")
    assert done.returncode == 0
    assert "time is up in t4; the same command goes on" in done.stderr
    assert calls(tmp_path)[-2:] == ["t4", "paper.gpu_reference readme"], "and packs"
    (tmp_path / "slow").write_text("", encoding="ascii")
    assert call().returncode == 0
    assert calls(tmp_path)[-3:] == ["t4", "cores repeats=3", "paper.gpu_reference readme"]


def test_a_piece_that_fails_is_named_and_not_repeated(call: Call, tmp_path: Path) -> None:
    (tmp_path / "slow").write_text("0 3 --experiment serial\n", encoding="ascii")
    for _ in range(2):
        done = call()
        assert done.returncode == 1
        assert "failed: serial; their output is in" in done.stderr
    assert calls(tmp_path).count("serial") == 1
    (tmp_path / "out" / "steps" / "serial.done").unlink()
    (tmp_path / "slow").write_text("", encoding="ascii")
    assert call().returncode == 0


def test_without_a_gpu_there_is_one_line(call: Call, tmp_path: Path) -> None:
    (tmp_path / "gpu").write_text("\n", encoding="ascii")
    done = call()
    assert (done.returncode, len(done.stderr.splitlines()), calls(tmp_path)) == (1, 1, [])
    assert done.stderr.startswith("gpu-reference: no NVIDIA GPU is here; CPU=1 tries")
    done = call(DRY="1")
    assert (done.returncode, done.stderr) == (0, "gpu-reference: no NVIDIA GPU is here\n")
    assert done.stdout.splitlines()[-5:] == [
        "cores-ours",
        "cores",
        "serial",
        "t4",
        "cores-repeated",
    ]
    assert call(CPU="1").returncode == 0
    assert "serial" in calls(tmp_path)
    assert (tmp_path / "out" / "reference").is_dir()
    assert not (tmp_path / "reference").exists(), "a try is no reference"


@pytest.mark.slow
def test_wheels_lie_over_the_packages_of_a_python(tmp_path: Path) -> None:
    """What is in the folder is imported, and so is what the Python has; it stays as it was."""
    (tmp_path / "wheels").mkdir()
    wheel = tmp_path / "wheels" / "toywheel-1.0-py3-none-any.whl"
    about = "toywheel-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toywheel.py", "value = 5\n")
        archive.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: toywheel\nVersion: 1.0\n"
        )
        tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{about}/WHEEL", tags)
        archive.writestr(f"{about}/RECORD", "")
    given = {"PY": sys.executable, "RECORDS": str(tmp_path / "out"), "DRY": "1"}
    environment = {**os.environ, **given, "WHEELS": str(wheel.parent)}
    for _ in range(2):
        done = subprocess.run(
            ["bash", str(SCRIPT)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    python = tmp_path / "out" / "venv" / "bin" / "python"
    program = "import numpy, toywheel; print(toywheel.value)"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "5\n"
    assert importlib.util.find_spec("toywheel") is None


def test_a_python_without_the_packages(call: Call, python: Path) -> None:
    python.write_text("#!/usr/bin/env bash\nexit 1\n", encoding="ascii")
    done = call()
    assert done.returncode == 1
    assert "give their wheels: WHEELS=dir" in done.stderr


# --- the README of a reference --------------------------------------------------------------------


CODE = provenance.code_digest(registry.timed_by("throughput", "t4"))
GPU = {"name": "Tesla T4", "memory_gib": 15, "driver": "580.1"}


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = provenance.machine() | {"gpus": [GPU], "cpu": "Xeon(R) 8481C", "cores": 16}
    monkeypatch.setattr(provenance, "machine", lambda: machine)


def test_experiments_by_value_and_each_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_reference.main(["order"]) == 0
    names = capsys.readouterr().out.split()
    assert names[:4] == ["serial", "t4", "opt", "onnx"]
    assert sorted(names) == sorted(contents.ORDER)


def test_the_folder_names_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_reference.main(["folder"]) == gpu_reference.main(["gpu"]) == 0
    assert capsys.readouterr().out == "tesla-t4-xeon-r-8481c-16-cores\nTesla T4\n"


def measured(runs: Path, code: str = CODE, **values: Any) -> None:
    """Two passes on the GPU, the second with these values, and one without its library."""
    state = {"utc": "2026-11-24T10:00:00Z", "git": {"commit": "0123456789abcdef"}}
    good: dict[str, Any] = {"gpu_segments_allocated": 0, "clock_error_us": 4.25}
    taken = [
        made.record("t4", "throughput", "baseline", good, {}),
        made.record("t4", "throughput", "wide", {**good, **values}, {}),
        replace(
            made.record("t4", "throughput", "other", {}, {}), status="unavailable", reason="no x"
        ),
    ]
    for record in taken:
        environment = {**record.environment, "before": state, "code": code}
        whole = replace(record, environment=environment)
        records.write(runs / "t4" / record.cell.label, whole)
    records.write_index(runs, "t4", [record.cell.label for record in taken])


def written(tmp_path: Path) -> str:
    (tmp_path / "reference").mkdir(exist_ok=True)
    folders = [f"--{name}={tmp_path / name}" for name in ("steps", "runs", "reference")]
    assert gpu_reference.main(["readme", *folders]) == 0
    return (tmp_path / "reference" / "README.md").read_text(encoding="utf-8")


def test_the_readme_says_how_far_it_came(tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    steps.mkdir()
    for number, (name, log, status) in enumerate(
        (
            ("cuda-harness-test_x", "...\n=== 3 passed, 2 deselected in 4.10s ===\n", "0"),
            ("serial", "fine\n", "0"),
            ("opt", "a | b\nKilled\n", "137"),
            ("t4", "half of it\n", ""),
        )
    ):
        (steps / f"{name}.log").write_text(log, encoding="utf-8")
        path = steps / f"{name}.log"
        path.touch()
        os.utime(path, (number, number))
        if status:
            (steps / f"{name}.done").write_text(status + "\n", encoding="ascii")
    measured(tmp_path / "runs", gpu_segments_allocated=2)
    page = written(tmp_path)
    assert page.startswith("# Reference run: Tesla T4, Xeon(R) 8481C, 16 cores\n")
    assert "driver 580.1, 15 GiB; measured 2026-11-24; at commit 0123456789ab." in page
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert rows == [
        "| cuda-harness-test_x | 3 passed, 2 deselected |",
        "| serial | complete |",
        "| opt | ended with status 137: Killed |",
        "| t4 | not complete |",
    ]
    assert "\n- t4/other: unavailable: no x\n" in page
    assert "2 passes; in 1 of them the allocator took memory while timed." in page
    assert "- t4/wide, repeat 1: 2 segments, 0 failed images" in page
    assert "right to 4.2 µs" in page


def test_before_anything_was_measured(tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    page = written(tmp_path)
    assert "\nNone.\n" in page
    assert "No pass ran on a GPU." in page


@pytest.mark.parametrize(("code", "n"), [(CODE, 3), ("of another commit", 0)])
def test_records_of_this_code_are_restored(code: str, n: int, tmp_path: Path) -> None:
    """Others beside what is measured now would keep that from being packed."""
    measured(tmp_path / "runs", code)
    (tmp_path / "reference").mkdir()
    packing.pack([tmp_path / "runs"], tmp_path / "reference" / packing.ARCHIVE)
    folders = [f"--runs={tmp_path / 'again'}", f"--reference={tmp_path / 'reference'}"]
    assert gpu_reference.main(["restore", *folders]) == 0
    assert len(records.load_experiment(tmp_path / "again", "t4")) == n
    assert gpu_reference.main(["restore", *folders[:1], f"--reference={tmp_path / 'none'}"]) == 1
