"""scripts/gpu-reference.sh: pieces in order, within its time, and a reference after every call.

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
from pathlib import Path

import pytest

from tests.conftest import ROOT

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
