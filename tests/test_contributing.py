"""What CONTRIBUTING.md adds, as it stands there, works in a copy of the checkout."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.table import read_table
from paper import claims
from tests import making
from tests.conftest import ROOT
from tests.test_recipe_fields import columns, fields_read

#: What a copy has: the code, its tests without their data, and what they read.
FOLDERS = ("code", "experiments", "conf", "data/paper", "requirements", "tests")
#: The tests that see a new decoder, loader, sink and field: by the structure, and by its name.
TESTS = (
    "tests/test_layers.py",
    "tests/test_recipe_fields.py",
    "tests/harness/test_registries.py",
    "tests/harness/engines/test_loaders.py",
    "tests/wallclock/stages/test_decode.py",
    "tests/harness/test_sinks.py",
    "tests/wallclock/test_command_line.py",
)
SELECTED = (
    "toy or test_recipe_fields or test_registries or one_way or circles"
    " or its_settings or decoders_state_themselves or truncated"
    " or type_checker_knows_the_settings"
)


def blocks() -> list[tuple[str, str, str]]:
    """Language, path and text of the blocks that begin with a comment naming a file."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.findall(r"```(\w+)\n# ([\w./]+)\n(.*?)```", text, re.DOTALL)


def patched(text: str, edit: str) -> str:
    """A file's text after an edit: lines that begin with a space, + and -."""
    lines = [line for line in edit.splitlines(keepends=True) if line.strip()]
    before = "".join(line[1:] for line in lines if line[0] != "+")
    after = "".join(line[1:] for line in lines if line[0] != "-")
    if not before:
        return text + after
    assert text.count(before) == 1, f"{text.count(before)} places in it have:\n{before}"
    return text.replace(before, after)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with all that CONTRIBUTING.md adds."""
    copy = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__", "fixtures")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", copy)
    for language, path, text in blocks():
        if language == "diff":
            text = patched((copy / path).read_text(encoding="utf-8"), text)
        else:
            assert not (copy / path).exists(), f"{path} is no new file"
        (copy / path).parent.mkdir(exist_ok=True)
        (copy / path).write_text(text, encoding="utf-8")
    return copy


def start(tree: Path, name: str, *arguments: str) -> subprocess.Popen[str]:
    """Start Python in the copy; what it prints goes to `name`.txt."""
    paths = os.pathsep.join([str(tree / "code"), str(tree)])
    with (tree / f"{name}.txt").open("w", encoding="utf-8") as printed:
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": paths},
            stdout=printed,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture(scope="module")
def printed(tree: Path) -> dict[str, str]:
    """What the project's tests and a run print in the copy. Both run at once, and succeed."""
    making.folder(tree / "images", 1)
    tests = ["-m", "pytest", "-v", "-p", "no:cacheprovider", "-k", SELECTED, *TESTS]
    command = ["code/main.py", "--quick", "model=null", "device=cpu", "repeats=1"]
    command += ["corpus=folder", f"corpus.path={tree / 'images'}", "corpus.image_set=small_256"]
    command += ["--experiment", "toy"]
    recipe = {"workers": 0, "sink": "toy", "resize_threads": 2}
    command += [f"experiment.toy.recipe.{name}={value}" for name, value in recipe.items()]
    processes = {"tests": start(tree, "tests", *tests), "run": start(tree, "run", *command)}
    try:
        codes = {name: process.wait(timeout=300) for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    texts = {name: (tree / f"{name}.txt").read_text(encoding="utf-8") for name in processes}
    for name, code in codes.items():
        assert code == 0, texts[name]
    return texts


def test_every_section_has_its_files() -> None:
    names = [path for _, path, _ in blocks()]
    assert len(names) == len(set(names)) + 1, "spec.py is edited for a sink and for a field"
    assert sum("toy" in name for name in names) == 6


@pytest.mark.slow
def test_structure_and_tests(printed: dict[str, str]) -> None:
    """The layers, the registries, and the project's own tests of what was added."""
    passed = re.findall(r"^(\S+) PASSED", printed["tests"], re.MULTILINE)
    for name in (
        "test_packages_point_one_way",
        "test_every_field_is_a_column_or_the_reason_is_said",
        "test_every_module_is_a_decoder",
        "test_images_match_their_positions[toy-]",
        "test_decoders_state_themselves",
        "test_truncated_file[0.5]",
        "test_round_trip[toy]",
        "test_a_type_checker_knows_the_settings",
    ):
        assert any(test.endswith(f"::{name}") for test in passed), name


@pytest.mark.slow
def test_the_experiment_runs(tree: Path, printed: dict[str, str]) -> None:
    """With the decoder, the sink and the field; its table, figure, sentence and verdict."""
    rows = read_table(tree / "data" / "toy.csv")
    columns = ("decoder", "sink", "resize_threads", "status")
    assert {tuple(row[name] for name in columns) for row in rows} == {
        ("pil", "toy", "2", "ok"),
        ("toy", "toy", "2", "ok"),
    }
    figures = {path.suffix for path in (tree / "figures").glob("fig-22-toy.*")}
    assert figures == {".pdf", ".png", ".svg"}
    verdicts = {row["id"]: row for row in read_table(tree / "data" / "claims.csv")}
    verdict = verdicts["toy-speedup"]
    assert verdict["ours"]
    assert verdict["verdict"] == claims.NOT_APPLICABLE
    assert "mock model" in verdict["reason"]
    assert printed["run"].splitlines()[-1].startswith("the toy decoder makes it ")


def test_a_field_without_its_reader_and_column_fails() -> None:
    """The last section adds both; without them tests/test_recipe_fields.py fails."""
    (edit,) = [text for _, path, text in blocks() if "spec.py" in path and ": Positive" in text]
    (field,) = re.findall(r"^\+ +(\w+): Positive", edit, re.MULTILINE)
    assert field not in fields_read()
    assert field not in columns()
