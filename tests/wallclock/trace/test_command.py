"""`wallclock trace …` as a user gives it: words, streams, exit status, files, signals."""

import json
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import making
from tests.running import start_python
from tests.wallclock.trace.programs import write
from wallclock.__main__ import main

PROGRAM = """
import os, shutil, signal, sys, tempfile, time
from PIL import Image

how, *words = sys.argv[1:]
for _ in range(3):
    Image.open("photo.jpg").convert("RGB").resize((8, 8))
if how == "stubborn":
    for handled in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(handled, lambda number, frame: sys.exit(9))
print("ready", words, sys.stdin.readline() if how == "read" else "", flush=True)
if how in ("sleep", "stubborn"):
    time.sleep(60)
if how == "empty":
    for name in os.listdir(tempfile.gettempdir()):
        shutil.rmtree(os.path.join(tempfile.gettempdir(), name))
if how == "abort":
    os.abort()
sys.exit(5 if how == "fail" else 0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The program, a photo, and a folder for temporary files."""
    write(tmp_path, PROGRAM)
    (tmp_path / "photo.jpg").write_bytes(making.jpeg(64, 48))
    (tmp_path / "temporary").mkdir()
    return tmp_path


def start(folder: Path, *words: str) -> "subprocess.Popen[str]":
    env = {"TMPDIR": str(folder / "temporary"), "COLUMNS": "100"}
    trace = ("-m", "wallclock", "trace", *words)
    return start_python(*trace, cwd=folder, env=env, stdin=subprocess.PIPE)


def finish(running: "subprocess.Popen[str]", given: str = "") -> tuple[int, str, str]:
    """Its status, output and errors."""
    stdout, stderr = running.communicate(given, timeout=60)
    return running.returncode, stdout, stderr


def test_the_report_and_the_files(folder: Path) -> None:
    words = (
        "--json",
        "t.json",
        "--html=t.html",
        "program.py",
        "read",
        "--help",
        "--token",
        "S3CRET",
    )
    status, stdout, stderr = finish(start(folder, *words), "a line\n")
    assert (status, stdout) == (0, "ready ['--help', '--token', 'S3CRET'] a line\n\n")
    assert "PIL" in stderr
    json_text, page = ((folder / name).read_text(encoding="utf-8") for name in ("t.json", "t.html"))
    assert json.loads(json_text)["program"]["command"] == ["program.py"]
    assert "<html" in page
    assert "S3CRET" not in json_text + page + stderr
    assert not list((folder / "temporary").iterdir())


@pytest.mark.parametrize(
    ("how", "status"), [("fail", 5), ("abort", 128 + signal.SIGABRT)], ids=["status", "signal"]
)
def test_the_exit_status_is_the_programs(how: str, status: int, folder: Path) -> None:
    ended, stdout, stderr = finish(start(folder, "program.py", how))
    assert ended == status
    assert stdout == "ready [] \n"
    assert "PIL" in stderr
    assert not list((folder / "temporary").iterdir())
    assert not list(folder.glob("core*"))


def test_a_program_that_empties_its_folder_of_temporary_files(folder: Path) -> None:
    status, stdout, stderr = finish(start(folder, "program.py", "empty"))
    assert (status, stdout) == (0, "ready [] \n")
    assert "The program was not traced" in stderr


@pytest.mark.parametrize(
    ("how", "number", "status"),
    [
        ("sleep", signal.SIGTERM, 128 + signal.SIGTERM),
        ("sleep", signal.SIGINT, 128 + signal.SIGINT),
        ("stubborn", signal.SIGTERM, 9),
        ("stubborn", signal.SIGUSR1, 9),
    ],
)
def test_a_signal_goes_to_the_program(how: str, number: int, status: int, folder: Path) -> None:
    running = start(folder, "program.py", how)
    assert running.stdout is not None
    assert running.stdout.readline() == "ready [] \n"
    running.send_signal(number)
    ended, _, stderr = finish(running)
    assert ended == status
    assert "3 images" in stderr
    assert stderr.count("Traceback") == (1 if number == signal.SIGINT else 0)
    assert not list((folder / "temporary").iterdir())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--json"], "argument --json: expected one argument"),
        (["--try=1", "program.py"], "argument --try: ignored explicit argument"),
        (["--html", "x"], "a program: script.py args, or -m module args"),
        (["--json", "absent/t.json", "program.py"], "absent/t.json cannot be written"),
    ],
)
def test_mistakes(
    words: list[str],
    says: str,
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line, before anything runs."""
    monkeypatch.chdir(folder)
    assert main(["trace", *words]) == (1 if "cannot be written" in says else 2)
    printed = capfd.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("wallclock: ")
    assert says in line


CTRL_C = """
import signal, time
arrived = []
signal.signal(signal.SIGINT, lambda number, frame: arrived.append(number))
print("ready", flush=True)
while not arrived:
    time.sleep(0.01)
time.sleep(0.3)  # a second one would have come by now
print("arrived", len(arrived), flush=True)
"""


def test_ctrl_c_arrives_once(tmp_path: Path) -> None:
    """A terminal sends it to the command and to the program."""
    write(tmp_path, CTRL_C)
    ours, theirs = pty.openpty()
    lines = ["import fcntl, os, sys, termios"]
    lines += ["fcntl.ioctl(0, termios.TIOCSCTTY, 0)"]
    lines += ["os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"]
    command = ["-m", "wallclock", "trace", "program.py"]
    options: Any = {"cwd": tmp_path, "stdin": theirs, "stderr": subprocess.DEVNULL}
    with start_python("-c", "\n".join(lines), *command, **options) as running:
        os.close(theirs)
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        os.write(ours, b"\x03")
        assert running.stdout.readline() == "arrived 1\n"
    os.close(ours)
    assert running.returncode == 0
