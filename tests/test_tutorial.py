"""The tutorial and the page on training: commands as typed, blocks as written.

Beside what a reader does: 24 images instead of a thousand, a folder of the test's, one pass over
the costs, and `weights=random`, as no weights are downloaded.
"""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests import making
from tests.conftest import ON_PATH, ROOT, run_command

TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
TRAINING = (ROOT / "docs" / "training.md").read_text("utf-8")
BLOCK = re.compile(r"```(sh|python)\n(.*?)```", re.DOTALL)
IMAGES = 24
#: Target → what the test adds to its settings.
ADDED = {
    "diagnose": "device=cpu experiment.diagnose.passes=1",
    "embed": "device=cpu weights=random",
}


def run(*command: str, cwd: Path) -> str:
    return run_command(*command, cwd=cwd, env={**os.environ, **ON_PATH}).stdout


def type_command(line: str, folder: Path) -> str:
    """Run a line of the shell, its folder `first` in `folder`."""
    words = shlex.split(line.replace("first/", f"{folder}/first/"), comments=True)
    assert words[0] == "make"
    if added := ADDED.get(words[1]):
        given = next((word for word in words if word.startswith("ARGS=")), "ARGS=")
        words = [*(word for word in words if word != given), f"{given} {added}"]
    return run("make", "--no-print-directory", f"PY={sys.executable}", *words[1:], cwd=ROOT)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_tutorial(tmp_path: Path) -> None:
    blocks = BLOCK.findall(TUTORIAL)
    printed = []
    for language, text in blocks:
        if language == "python":
            code = text.replace("range(1000)", f"range({IMAGES})")
            printed.append(run(sys.executable, "-W", "error", "-c", code, cwd=tmp_path))
            continue
        for line in text.splitlines():
            if not line.startswith("make setup"):  # this environment is set up
                printed.append(type_command(line, tmp_path))
    images, diagnosed, embedded, verified, nearest, again = printed
    assert images == ""
    assert len(list((tmp_path / "first" / "images").glob("*.jpg"))) == IMAGES
    assert "forward" in diagnosed
    assert (tmp_path / "first" / "figures" / "diagnosis.html").is_file()
    assert f"{IMAGES}" in embedded
    assert "no fault" in verified
    assert nearest.startswith("['0000.jpg', ")
    assert again
    assert (tmp_path / "first" / "search.html").read_text("utf-8").count("<img") == 5


@pytest.mark.slow
def test_training(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for name in ("a", "b"):
        (tmp_path / "photos" / f"{name}.jpg").write_bytes(making.jpeg(320, 240))
    (text,) = [text for language, text in BLOCK.findall(TRAINING) if language == "python"]
    resumed = run(sys.executable, "-W", "error", "-c", text, cwd=tmp_path)
    # Three epochs of two images: all six, each once an epoch.
    ids = re.findall(r"photos/(\w)\.jpg", resumed)
    assert len(ids) == 6
    assert [sorted(ids[at : at + 2]) for at in (0, 2, 4)] == [["a", "b"]] * 3
