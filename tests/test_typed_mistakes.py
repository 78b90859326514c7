"""Mistakes at the terminal: each is one line with its cause and its fix, and ends with status 2."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import main as study
import paper.__main__
import paper.compare
import paper.drift
import wallclock.__main__
from tests import making
from tests.conftest import ROOT
from wallclock import machine

Capture = pytest.CaptureFixture[str]

#: What is typed behind `python code/main.py`, then parts of the line: the cause, and the fix. More
#: mistakes in settings: refusals.txt.
STUDY = (
    ("--experimnt serial", "no flag is called '--experimnt'", "did you mean --experiment"),
    ("{", "{: it is not a setting", "write key=value"),
    ("--experiment serial,,", "a name is empty", "write --experiment serial"),
    ("--experiment seriall", "'seriall'", "did you mean serial"),
    ("serial", "serial: it is not a setting", "write --experiment serial"),
    ("--experiment serial device=cuda", "there is no NVIDIA GPU", "set device=auto or device=cpu"),
    ("--experiment cpu corpus=folder", "needs the folder", "add corpus.path=/path/to/images"),
    ("--experiment cpu corpus=folder corpus.path=nowhere", "nowhere does not", "give the folder"),
)
#: Behind `wallclock`. `images` is a folder with a photo in it.
PRODUCT = (
    ("foo", "no command is called 'foo'", "valid: demo, doctor, embed"),
    ("embd images out", "'embd'", "did you mean embed"),
    ("embed images", "arguments are required: OUT", "usage: wallclock embed SRC OUT"),
    ("embed images out shrad=5", "'shrad'", "did you mean shard"),
    ("embed images out --shard", "--shard: expected one argument", "--help lists the options"),
    ("embed images out shard", "shard", "write --shard X"),
    ("embed images out more", "more: unknown", "usage: wallclock embed SRC OUT"),
    ("embed images out shard=ten", "shard=ten", "give a whole number"),
    ("embed images out model=clip", "model=clip", "give a hub id (owner/name), a folder"),
    ("embed images out model=~no-one", "model=~no-one", "give a hub id (owner/name), a folder"),
    (f"embed images out model={'x' * 3000}", "model=xxx", "give a hub id (owner/name), a folder"),
    (f"trace {'x' * 3000}", "no script xxx", "give a Python file"),
    ("embed images out device=cuda", "there is no NVIDIA GPU", "set device=auto"),
    ("embed images out recipe=slow", "no recipe is called", "did you mean pillow"),
    ("embed images out model=null preprocess=crop:x", "preprocess=crop:x", "give sizes as in"),
    ("embed images/a.jpg out model=null", "a.jpg is an image", "give its folder, or a list"),
    ("embed nowhere out model=null", "nowhere does not exist", "give a folder, a list"),
    ("verify", "arguments are required: OUT", "usage: wallclock verify OUT"),
    ("verify out m=5", "'m'", "valid: n, seed"),
    ("serve", "arguments are required: QUEUE_URL", "usage: wallclock serve QUEUE_URL"),
    ("serve notaurl", "notaurl", "give a queue's URL, https://sqs."),
    ("serve http://127.0.0.1:1/0/work --bach 5", "'bach'", "did you mean batch"),
    ("serve http://127.0.0.1:1/0/work module=mine", "module=mine", "give package.module:Class"),
    ("serve http://127.0.0.1:1/0/work ports=http", "ports=http", "give numbers"),
    ("trace", "trace needs a program", "script.py args, or -m module args"),
    ("trace --jsn x program.py", "unrecognized arguments: --jsn", "usage: wallclock trace"),
    ("trace nowhere.py", "no script nowhere.py", "give a Python file"),
)
#: Behind `python -m paper`.
PAPER = (
    ("dif", "'dif'", "diff"),
    ("diff --a tables", "needs both", "make diff A=dir B=dir"),
    ("diff --a nowhere --b nowhere", "no tables in nowhere", "give a folder that a run wrote"),
    ("diff --tolerance much", "'much'", "--help"),
    ("analytic --batch 1 --step-ms 1", "--sample-kb", "--help"),
    (
        "analytic --sample-kb 500 --batch 1 2 --step-ms 1 --workers 8 --worker-mb-per-s 250",
        "2 of --batch, 1 of --step-ms",
        "give a step for each batch",
    ),
    ("analytic --sample-kb 500 --batch 1 --step-ms 1", "needs one rate", "--worker-mb-per-s"),
    (
        "analytic --sample-kb 0 --batch 1 --step-ms 1 --transform-gb-per-s 1",
        "--sample-kb",
        "above 0",
    ),
    ("check --pack runs", "--pack needs the folder", "--reference DIR"),
)


def run_study(words: Sequence[str]) -> int:
    """`python code/main.py …`, in this process."""
    sys.argv[1:] = words
    study.main()
    return 0


def ends(run: Callable[[Sequence[str]], int], words: str) -> int:
    """The exit status, also of a parser that ends the process."""
    try:
        return run(words.split())
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else -1


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a photo, on a machine without a GPU; what commands change is put back."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.jpg").write_bytes(making.jpeg(64, 48))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "gpus", list)
    monkeypatch.setattr(sys, "argv", ["main.py"])
    monkeypatch.setattr(study, "COMMAND", "python code/main.py", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def check(status: int, capsys: Capture, *parts: str) -> None:
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert (status, len(lines)) == (2, 1), printed.err
    assert lines[0].startswith(("wallclock: ", "usage: wallclock "))
    assert "Traceback" not in printed.out
    for part in parts:
        assert part in lines[0]


@pytest.mark.parametrize(("words", "cause", "fix"), STUDY)
def test_of_the_study(words: str, cause: str, fix: str, folder: Path, capsys: Capture) -> None:
    places = f"out={folder / 'data'} figures={folder / 'figures'}"
    words = words if words.startswith("out=") else f"{words} {places}"
    check(ends(run_study, words), capsys, cause, fix)


@pytest.mark.parametrize(("words", "cause", "fix"), PRODUCT)
def test_of_the_product(words: str, cause: str, fix: str, capsys: Capture) -> None:
    check(ends(wallclock.__main__.main, words), capsys, cause, fix)


@pytest.mark.parametrize(("words", "cause", "fix"), PAPER)
def test_of_paper(words: str, cause: str, fix: str, capsys: Capture) -> None:
    check(ends(paper.__main__.main, words), capsys, cause, fix)


def test_of_compare_and_drift(folder: Path, capsys: Capture) -> None:
    (folder / "a.txt").touch()
    for words, cause, fix in (
        ("--a nowhere.npy --b a.txt", "nowhere.npy does not exist", "give a file of vectors"),
        ("--a a.txt --b a.txt", "no format of vectors is called 'txt'", "parquet"),
        ("--a a.txt", "--b", "--help"),
    ):
        check(ends(paper.compare.main, words), capsys, cause, fix)
    for words, cause, fix in (
        ("--a nowhere --b images", "nowhere does not exist", "give the folder"),
        ("--a images --b images --n 0", "--n 0", "at least one image"),
    ):
        check(ends(paper.drift.main, f"{words} --out {folder}"), capsys, cause, fix)


@pytest.mark.parametrize(
    ("words", "cause", "fix"),
    [
        ("diagnose", "needs the folder with your images", "IMAGES=/path/to/images"),
        ("embed IMAGES=images", "needs images and a folder", "OUT=/path/to/vectors"),
        ("verify", "needs the folder of vectors", "OUT=/path/to/vectors"),
        ("serve", "needs the queue's URL", "QUEUE=https://sqs."),
        ("drift A=images", "compares two folders", "A=old/ B=new/"),
        ("compare A=a.npy", "compares two files of vectors", "A=old.parquet B=new.parquet"),
    ],
)
def test_of_make(words: str, cause: str, fix: str) -> None:
    """make adds a line of its own: which target failed."""
    done = subprocess.run(
        ["make", f"PY={sys.executable}", *words.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        # Under `make test`, make would call itself make[1].
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
    )
    line, *of_make = done.stderr.splitlines()
    assert done.returncode == 2
    assert cause in line
    assert fix in line
    assert all(other.startswith("make: ") for other in of_make)
