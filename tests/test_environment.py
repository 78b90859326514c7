"""One lock for venv and conda; the Makefile's targets and the scripts."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.conftest import ROOT, run_command

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)$")


def normal(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lines(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    stripped = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in stripped if line]


def pins(lock: str) -> dict[str, str]:
    """Name → version of a lock, of which every line is a name and an exact version."""
    matches = [_PIN.match(line) for line in lines(f"requirements/{lock}.lock")]
    assert all(matches)
    versions = {normal(match[1]): match[2] for match in matches if match}
    assert len(versions) == len(matches), "no name is pinned twice"
    return versions


LOCK = pins("dev")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
CONDA: dict[str, Any] = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))


def required(extra: str) -> list[Requirement]:
    """What the library needs with an extra, the extras that it names included."""
    named = [extra]
    found = [*map(Requirement, PROJECT["project"]["dependencies"])]
    for name in named:
        for line in map(Requirement, PROJECT["project"]["optional-dependencies"][name]):
            if line.name == "wallclock-images":
                named += line.extras
            else:
                found.append(line)
    return found


@pytest.mark.parametrize("lock", ["dev", "paper"])
def test_requirements_are_locked_within_bounds(lock: str) -> None:
    requirements = required("dev")
    assert len(requirements) > 40
    versions = pins(lock)
    for requirement in requirements:
        assert requirement.specifier.contains(versions[normal(requirement.name)]), requirement


@pytest.mark.parametrize(
    ("lock", "extra"), [("peers", "peers"), ("docs", "docs"), ("cluster", "ray")]
)
def test_other_locks_change_no_version(lock: str, extra: str) -> None:
    versions = pins(lock)
    assert not versions.keys() & LOCK.keys()
    for requirement in required(extra):
        version = (versions | LOCK)[normal(requirement.name)]
        assert requirement.specifier.contains(version), requirement


HASHES = dict(line.split(" ", 1) for line in lines("requirements/hashes.txt"))


def test_each_pin_has_hashes() -> None:
    """But torch and what is built for it, whose build differs between machines."""
    locks = ("dev", "paper", "peers", "docs", "cluster")
    pinned = {line for lock in locks for line in lines(f"requirements/{lock}.lock")}
    without = {pin.partition("==")[0] for pin in pinned - HASHES.keys()}
    assert without == {"torch", "torchvision", "torchcodec"}
    assert HASHES.keys() <= pinned
    assert all(re.fullmatch(r"(--hash=sha256:[0-9a-f]{64} ?)+", text) for text in HASHES.values())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one package, in a wheel beside it, and the `pip` of this environment."""
    for folder in ("scripts", "requirements", ".venv/bin", "wheels"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "install.sh", tmp_path / "scripts")
    wheel = tmp_path / "wheels" / "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("toy.py", "")
        file.writestr(
            "toy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n"
        )
        file.writestr("toy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr("toy-1.0.dist-info/RECORD", "toy.py,,\n")
    pip = tmp_path / ".venv" / "bin" / "pip"
    options = f"--no-index --find-links {wheel.parent} --target {tmp_path / 'installed'}"
    pip.write_text(f'#!/bin/sh\nexec {sys.executable} -m pip "$@" {options}\n')
    pip.chmod(0o755)
    (tmp_path / "requirements" / "toy.lock").write_text("# Toys.\ntoy==1.0\ntorch==2.0\n")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (tmp_path / "requirements" / "hashes.txt").write_text(f"toy==1.0 --hash=sha256:{digest}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("hashes", "words"),
    [
        (None, ""),
        (f"toy==1.0 --hash=sha256:{'0' * 64}\n", "DO NOT MATCH THE HASHES"),
        ("toy==0.9 --hash=sha256:00\n", "Hashes are required"),
    ],
)
def test_what_is_installed_has_its_hash(checkout: Path, hashes: str | None, words: str) -> None:
    if hashes is not None:
        (checkout / "requirements" / "hashes.txt").write_text(hashes)
    command = ["bash", "scripts/install.sh", "requirements/toy.lock"]
    environment = {name: text for name, text in os.environ.items() if name[:4] != "PIP_"}
    environment |= {"PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    assert (done.returncode == 0) == (checkout / "installed" / "toy.py").exists() == (not words)
    assert words in done.stderr


def test_the_papers_lock_has_its_versions() -> None:
    versions = pins("paper")
    names = ("torch", "transformers", "opencv-python-headless", "onnxruntime-gpu")
    assert [versions[name] for name in names] == ["2.11.0", "5.6.1", "4.13.0.92", "1.23.2"]


def test_installed_versions_are_locked() -> None:
    for name, version in LOCK.items():
        assert metadata.version(name).partition("+")[0] == version, name


def test_conda_installs_the_lock() -> None:
    (pip,) = [part["pip"] for part in CONDA["dependencies"] if isinstance(part, dict)]
    assert pip == ["-r requirements/dev.lock", "--editable ."]
    plain = [part for part in CONDA["dependencies"] if isinstance(part, str)]
    names = sorted(re.split(r"[<>=]", part)[0] for part in plain)
    assert names == ["c-compiler", "libjpeg-turbo", "pip", "python"]
    assert "libjpeg-turbo>=3" in plain
    (python,) = [part.partition("=")[2] for part in plain if part.startswith("python=")]
    assert SpecifierSet(PROJECT["project"]["requires-python"]).contains(f"{python}.0")
    assert CONDA["channels"] == ["conda-forge"]


def test_versions_are_pinned_in_the_lock_only() -> None:
    scripts = (f"scripts/{name}.sh" for name in ("setup", "install"))
    for name in ("pyproject.toml", "environment.yml", "Makefile", ".ci/run", *scripts):
        pins = [line for line in lines(name) if re.search(r"[A-Za-z0-9_.-]==\d", line)]
        assert not pins, f"{name}: {pins}"


# --- Makefile and scripts -----------------------------------------------------------------------


def rule(target: str) -> str:
    (line,) = [line for line in lines("Makefile") if line.startswith(f"{target}:")]
    return line


def test_help_lists_every_target() -> None:
    # Run by `make test`, a second make would also print the folder that it enters.
    lines = run_command("make", "--no-print-directory", "help").stdout.splitlines()
    assert max(map(len, lines)) <= 110
    listed = [line.split()[1] for line in lines if line.startswith("  make ")]
    assert sorted(listed) == sorted(rule(".PHONY").split()[1:])
    for target in listed:
        run_command("make", "--dry-run", target)
        if target not in ("help", "all", "docs", "audit", "lock", "clean"):
            assert "$(READY)" in rule(target), f"{target} sets up first"


def test_kills_and_faults_are_part_of_ci() -> None:
    """The modules that are about them, of those that have slow tests; each one listed is there."""
    dry = ["make", "--dry-run", "--no-print-directory", "PY=python", "test-faults"]
    listed = {word for word in run_command(*dry).stdout.split() if word.endswith(".py")}
    assert [name for name in listed if not (ROOT / name).is_file()] == []
    about = re.compile(r"kill|fault|disk_full|stopped|damaged|wheel|contributing")
    slow = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob("tests/**/test_*.py")
        if about.search(path.name) and "mark.slow" in path.read_text(encoding="utf-8")
    }
    assert slow <= listed


def test_scripts_stop_at_the_first_error() -> None:
    for script in (ROOT / ".ci" / "run", *ROOT.glob("scripts/*.sh")):
        if script.name != "gpu-reference.sh":  # it goes on behind a piece that failed
            assert "set -euo pipefail" in script.read_text(encoding="utf-8"), script
        run_command("bash", "-n", str(script))


# --- the environment's lock -----------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What `make setup` reads; an environment whose programs note what they are asked."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    asked = f'echo "$@" >>{tmp_path}/asked'
    read = 'case "$*" in */dev/stdin*) cat >/dev/null ;; esac'
    (programs / "pip").write_text(f"#!/bin/sh\n{asked}\n{read}\n")
    version = "grep -h ^torch== requirements/$(cut -c1-5 lock).lock"
    (programs / "python").write_text(f'#!/bin/sh\ncase "$2" in *torch==*) {version} ;; esac\n')
    (programs / "gcc").write_text("#!/bin/sh\n")
    for path in programs.iterdir():
        path.chmod(0o755)
    return tmp_path


def make(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *words],
        cwd=project,
        env={**os.environ, "MAKEFLAGS": "", "PATH": f"{project}/.venv/bin:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("kept", "words", "arguments"),
    [
        ("", (), "requirements/dev.lock"),
        ("dev", (), ""),
        ("paper 128", (), ""),
        ("paper 128", ("LOCK=paper", "CUDA=128"), ""),
        ("paper", ("LOCK=dev",), "requirements/dev.lock"),
        ("paper", ("LOCK=paper", "CUDA=128"), "requirements/paper.lock 128"),
        ("paper 128", ("CUDA=",), "requirements/paper.lock"),
    ],
)
def test_an_environment_keeps_its_lock_until_another_is_given(
    project: Path, kept: str, words: tuple[str, ...], arguments: str
) -> None:
    if kept:
        for name in (".ready", ".native"):
            (project / ".venv" / name).write_text(kept)
    planned = make(project, "--dry-run", "setup", *words).stdout
    set_up = re.findall(r'setup\.sh "python3" (.*?) *$', planned, flags=re.MULTILINE)
    assert set_up == ([arguments] if arguments else []), planned


def test_a_build_of_torch_is_installed_over_another(project: Path) -> None:
    (project / "lock").write_text("paper")
    (project / ".venv" / ".ready").write_text("paper cpu\n")
    done = make(project, ".venv/.ready", "LOCK=paper", "CUDA=128")
    assert done.returncode == 0, done.stderr
    assert (project / ".venv" / ".ready").read_text() == "paper 128\n"
    asked = (project / "asked").read_text()
    assert "uninstall -q -y torch\n" in asked
    assert "https://download.pytorch.org/whl/cu128 torch==2.11.0+cu128\n" in asked


def test_an_old_python_names_ways_without_root(project: Path, tmp_path: Path) -> None:
    shutil.rmtree(project / ".venv")
    python = tmp_path / "python3.10"
    python.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.10.12 || exit 1\n')
    python.chmod(0o755)
    done = make(project, "setup", f"PYTHON={python}")
    assert done.returncode != 0
    assert "Python 3.11 or newer with venv is needed; here: Python 3.10.12" in done.stderr
    for way in ("uv venv --seed --python 3.12 .venv", "conda env create -f environment.yml"):
        assert way in done.stderr
    assert not (project / ".venv").exists()
