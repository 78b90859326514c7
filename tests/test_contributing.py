"""A decoder, a loader and an experiment are added exactly as CONTRIBUTING.md says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from wallclock.paper.csvfile import read_table

PACKAGE = "code/wallclock"
DECODE, LOADERS = f"{PACKAGE}/stages/decode", f"{PACKAGE}/engines/third_party"
FILES = (f"{DECODE}/toy.py", f"{LOADERS}/toy.py", "experiments/toy.py", "conf/experiment/toy.yaml")


def block(path: str) -> str:
    """The fenced code block that begins with a comment naming `path`."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(rf"```\w+\n# {re.escape(path)}\n(.*?)```", text, re.DOTALL)
    return str(code)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the three toys."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in ("code", "experiments", "conf", "data/paper"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignore)
    shutil.copy(ROOT / "requirements.lock", copy)
    for path in FILES:
        (copy / path).write_text(block(path), encoding="utf-8")
    for registry in (DECODE, LOADERS):
        init = copy / registry / "__init__.py"
        text, count = re.subn(r"(?<=\n_MODULES = \()", '"toy", ', init.read_text(encoding="utf-8"))
        assert count == 1, "one line"
        init.write_text(text, encoding="utf-8")
    return copy


def run(tree: Path, *arguments: str) -> None:
    paths = os.pathsep.join((str(tree / "code"), str(tree)))
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "code/main.py", "--quick", "--n", "2", "model=null", "device=cpu"]
    done = subprocess.run(
        [*command, *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_toy_experiment_with_toy_decoder(tree: Path) -> None:
    options = ("experiment.toy.decoders=[pil,toy]", "experiment.toy.recipe.workers=0", "repeats=1")
    run(tree, "--experiment", "toy", *options)
    rows = read_table(tree / "data" / "toy.csv")
    assert [(row["decoder"], row["status"]) for row in rows] == [("pil", "ok"), ("toy", "ok")]


def test_toy_decoder_is_compared(tree: Path) -> None:
    run(tree, "--experiment", "decoders", "repeats=1")
    rows = read_table(tree / "data" / "decoder-comparison.csv")
    assert {row["status"] for row in rows if row["decoder"] == "toy"} == {"ok"}


def test_toy_loader_is_measured(tree: Path) -> None:
    systems = "experiment.frontier.systems=[toy]"
    run(tree, "--experiment", "frontier", systems, "loader_seconds=0.01", "repeats=1")
    rows = read_table(tree / "data" / "frontier.csv")
    assert {(row["system"], row["library"], row["status"]) for row in rows} == {
        ("toy", "toy 1.0", "ok")
    }
