"""What goes into the traced process runs on Python 3.9 and later, which a program may start."""

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import making
from tests.wallclock.trace.programs import ROOT, trace, write
from wallclock.trace.record import by_stage

INSIDE = ROOT / "code" / "wallclock" / "trace" / "inside"
LAUNCHER = """
import subprocess, sys
subprocess.run(sys.argv[1:], check=True)
"""
CHILD = """
import sys, time
from pathlib import Path
for _ in range(3):
    Path(sys.argv[1]).read_bytes()
ended = time.monotonic() + 0.6
while time.monotonic() < ended:
    sum(range(1000))
print(sys.version_info[:2])
"""


def test_its_syntax() -> None:
    for path in INSIDE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
        future = [n.module for n in tree.body if isinstance(n, ast.ImportFrom)]
        unions = [n for n in ast.walk(tree) if isinstance(n, ast.BinOp) and _is_none(n.right)]
        assert "__future__" in future or not unions, path
        keywords = [k.arg for n in ast.walk(tree) if isinstance(n, ast.Call) for k in n.keywords]
        assert "strict" not in keywords, f"{path}: zip has it from 3.10 on"


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _python(minor: int) -> str | None:
    """An interpreter of that version, on the path or of pyenv."""
    found = [shutil.which(f"python3.{minor}")]
    found += map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
    for python in filter(None, found):
        if not subprocess.run([python, "--version"], check=False, capture_output=True).returncode:
            return python
    return None


@pytest.mark.slow
@pytest.mark.parametrize("minor", [8, 9, 10, 12, 13])
def test_a_child_of_another_python(tmp_path: Path, minor: int) -> None:
    python = _python(minor)
    if python is None:
        pytest.skip(f"no Python 3.{minor}")
    (tmp_path / "photo.jpg").write_bytes(making.jpeg(64, 48))
    child = write(tmp_path, CHILD, "child.py")
    done = trace(write(tmp_path, LAUNCHER), python, child, tmp_path / "photo.jpg", cwd=tmp_path)
    assert done.stdout == f"(3, {minor})\n"
    if minor < 9:
        assert f"not traced: it is Python 3.{minor}" in done.stderr
        assert done.images("read") == 0
        return
    assert done.stderr == ""
    (child_process,) = [process for process in done.trace.processes if process.role != "main"]
    assert by_stage(child_process.threads)["read"].images == 3
    lines = {sample.path for thread in child_process.threads for sample in thread.samples}
    assert str(child) in lines
