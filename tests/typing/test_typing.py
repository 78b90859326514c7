"""What a user's type checker sees of the installed package, and that it is what comes."""

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import wallclock
from tests import making
from tests.conftest import ROOT
from tests.typing import user_file
from wallclock import Output
from wallclock.loader.images import BytesOutput, Options, TorchOutput


def test_the_file_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(making.jpeg(seed=number))
    user_file.main(str(tmp_path))
    shapes = "[(2, 20, 30, 3), (1, 20, 30, 3)] (3, 3) float32 float16 (16, 16, 3)\n"
    assert capsys.readouterr().out == shapes


def test_the_overloads_take_what_the_function_takes() -> None:
    parameters = inspect.signature(wallclock.open_images).parameters.values()
    named = [parameter.name for parameter in parameters if parameter.kind.name == "KEYWORD_ONLY"]
    assert {*Options.__annotations__} == {*named} - {"output", "preprocess"}


def test_the_texts_are_of_their_kind() -> None:
    for text in get_args(BytesOutput):
        assert (Output.parse(text).framework, Output.parse(text).dtype) == ("numpy", "uint8")
    for text in get_args(TorchOutput):
        assert Output.parse(text).framework == "torch"


def check(folder: Path, program: str) -> str:
    """What `mypy --strict` prints about a user's file; "" where it has no complaint."""
    (folder / "user_file.py").write_text(program, encoding="utf-8")
    words = ("--strict", "--no-error-summary", "--cache-dir", str(folder / "cache"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words, "user_file.py"],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT / "code"), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_mypy_of_a_users_file(tmp_path: Path) -> None:
    program = (ROOT / "tests" / "typing" / "user_file.py").read_text(encoding="utf-8")
    assert check(tmp_path, program) == ""
    numpy_is_torch = program.replace(
        "assert_type(batches, Images[Pixels])", "assert_type(batches, Images[torch.Tensor])"
    )
    (line,) = check(tmp_path, numpy_is_torch).splitlines()
    assert "[assert-type]" in line
