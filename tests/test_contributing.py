"""A decoder, a loader and an experiment are added exactly as CONTRIBUTING.md says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness import records
from paper.csvfile import read_table
from tests import making
from tests.conftest import ROOT

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


@pytest.mark.slow
def test_toys_run(tree: Path) -> None:
    paths = os.pathsep.join((str(tree / "code"), str(tree)))
    images = tree / "images"
    images.mkdir()
    (images / "0.jpg").write_bytes(making.jpeg())
    command = [sys.executable, "code/main.py", "--quick", "model=null", "device=cpu", "repeats=1"]
    command += ["corpus=folder", f"corpus.path={images}", "corpus.image_set=small_256"]
    command += ["--experiment", "toy,decoders,frontier", "loader_seconds=0.01"]
    command += ["experiment.toy.decoders=[toy]", "experiment.toy.recipe.workers=0"]
    command += ["experiment.frontier.all_variants=true"]  # in two rounds
    command += ["experiment.frontier.systems=[toy]", "experiment.decoders.decoders=[toy]"]
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

    def statuses(csv: str, column: str) -> set[tuple[str, str]]:
        return {(row[column], row["status"]) for row in read_table(tree / "data" / csv)}

    assert statuses("toy.csv", "decoder") == {("toy", "ok")}
    assert statuses("decoder-comparison.csv", "decoder") == {("toy", "ok")}
    assert statuses("frontier.csv", "library") == {("toy 1.0", "ok")}
    cells = records.load_experiment(tree / "data" / "runs", "frontier")
    assert ["search" in one.cell.params for one in cells] == [True, True, False]
