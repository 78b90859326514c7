"""One environment in two forms: what venv and conda install comes from one lock, and the Makefile works."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib import metadata
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)$")


def normal(name: str) -> str:
    """A distribution's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lines(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return [
        line.partition("#")[0].strip()
        for line in text.splitlines()
        if line.partition("#")[0].strip()
    ]


@pytest.fixture(scope="module")
def lock() -> dict[str, str]:
    found = [_PIN.match(line) for line in lines("requirements.lock")]
    assert all(found), "every line of requirements.lock is a name and an exact version"
    names = [normal(pin[1]) for pin in found if pin]
    assert len(set(names)) == len(names), "no name is pinned twice"
    return {normal(pin[1]): pin[2] for pin in found if pin}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def conda() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    return found


def test_every_name_that_is_asked_for_is_locked(lock: dict[str, str]) -> None:
    asked = [re.split(r"[\s<>=!~\[]", line)[0] for line in lines("requirements.in")]
    assert len(asked) > 20
    assert not [name for name in asked if normal(name) not in lock]


def test_bounds_of_what_is_asked_for_hold_in_the_lock(lock: dict[str, str]) -> None:
    from packaging.requirements import Requirement

    for line in lines("requirements.in"):
        asked = Requirement(line)
        assert asked.specifier.contains(lock[normal(asked.name)]), line


def test_what_is_installed_here_is_what_is_locked(lock: dict[str, str]) -> None:
    for name, version in lock.items():
        assert metadata.version(name).partition("+")[0] == version, name


def test_condas_pip_part_is_the_same_lock(conda: dict[str, Any]) -> None:
    (pip,) = [part["pip"] for part in conda["dependencies"] if isinstance(part, dict)]
    assert pip == ["-r requirements.lock", "--editable ."]


def test_conda_brings_python_pip_and_libjpeg_turbo_and_no_other_version(
    conda: dict[str, Any], project: dict[str, Any]
) -> None:
    from packaging.specifiers import SpecifierSet

    plain = [part for part in conda["dependencies"] if isinstance(part, str)]
    assert sorted(re.split(r"[<>=]", part)[0] for part in plain) == [
        "libjpeg-turbo",
        "pip",
        "python",
    ]
    assert "libjpeg-turbo>=3" in plain
    (python,) = [part.partition("=")[2] for part in plain if part.startswith("python=")]
    assert SpecifierSet(project["project"]["requires-python"]).contains(f"{python}.0")
    assert conda["channels"] == ["conda-forge"]


def test_versions_stand_in_the_lock_and_nowhere_else(project: dict[str, Any]) -> None:
    assert project["project"]["dynamic"] == ["dependencies"]
    assert project["tool"]["setuptools"]["dynamic"] == {
        "dependencies": {"file": ["requirements.lock"]}
    }
    for name in ("pyproject.toml", "environment.yml", "Makefile", "scripts/setup.sh", ".ci/run"):
        pins = [line for line in lines(name) if re.search(r"[A-Za-z0-9_.-]==\d", line)]
        assert not pins, f"{name}: {pins}"


def test_every_package_of_ours_is_installed(project: dict[str, Any]) -> None:
    inside = {
        ".".join(path.parent.relative_to(base).parts)
        for base in (ROOT / "code", ROOT)
        for path in (base / ("wallclock" if base.name == "code" else "experiments")).rglob(
            "__init__.py"
        )
    }
    assert set(project["tool"]["setuptools"]["packages"]) == inside


def makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def test_help_lists_every_target_and_each_is_one() -> None:
    # Below `make test` a second make would also print the folder it enters.
    done = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    listed = [line.split()[1] for line in done.stdout.splitlines()]
    (phony,) = [
        line.split(":")[1].split() for line in makefile().splitlines() if line.startswith(".PHONY")
    ]
    assert sorted(listed) == sorted(phony)
    assert {
        "setup",
        "quick",
        "run",
        "figures",
        "diff",
        "test",
        "test-slow",
        "lint",
        "clean",
    } <= set(listed)
    for target in listed:
        dry = subprocess.run(
            ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert dry.returncode == 0, dry.stderr


def test_what_needs_the_environment_sets_it_up_first() -> None:
    for target in ("quick", "run", "figures", "diff", "test", "test-slow", "lint", "setup"):
        (rule,) = [line for line in makefile().splitlines() if line.startswith(f"{target}:")]
        assert "$(READY)" in rule, rule


def test_ci_runs_set_up_lint_tests_and_the_quick_run() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "set -euo pipefail" in script
    positions = [script.index(f"make {target}") for target in ("setup", "lint", "test", "quick")]
    assert positions == sorted(positions)


@pytest.mark.parametrize("script", ["scripts/setup.sh", "scripts/lock.sh", ".ci/run"])
def test_scripts_stop_at_the_first_error(script: str) -> None:
    text = (ROOT / script).read_text(encoding="utf-8")
    assert "set -euo pipefail" in text
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)
