"""Stopped at any moment: no partial record, no process left, and the same command resumes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from experiments.decoders import cells as decoders
from harness import records
from harness.table import read_columns, read_table
from paper.__main__ import main as paper
from tests import making
from tests.conftest import ROOT, RunMain, short_run

STOPPED = "wallclock: stopped; what is complete is kept, the same command resumes"


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    images = making.folder(tmp_path / "images", 3)
    return ["corpus=folder", f"corpus.path={images}", *short_run(tmp_path)]


@contextmanager
def started(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """The command in a process group of its own, as a terminal starts it."""
    process = subprocess.Popen(
        [sys.executable, "code/main.py", *arguments],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        process.communicate()


def wait_until(
    condition: Callable[[], object], process: subprocess.Popen[str], seconds: float = 60
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.005)


def all_end(processes: list[psutil.Process], seconds: float = 10) -> bool:
    return not psutil.wait_procs(processes, timeout=seconds)[1]


def stop(process: subprocess.Popen[str], how: str) -> None:
    """End a run; an interrupted one says that it resumes."""
    if how == "kill -9":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    if how == "Ctrl-C":
        assert process.returncode == 130
        assert errors.strip() == STOPPED


def complete(out: Path) -> dict[Path, float]:
    return {path.parent: path.stat().st_mtime for path in out.glob("runs/*/[!.]*/COMPLETE")}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill -9", "Ctrl-C"])
def test_stopped_while_measuring(
    how: str, arguments: list[str], run_main: RunMain, tmp_path: Path
) -> None:
    """In the middle of a cell, after two others."""
    out = tmp_path / "data"
    arguments += ["model.service_ms=500", "experiment.decoders.decoders=[pil]"]
    arguments += ["--experiment", "decoders,cpu"]
    with started(arguments) as process:
        wait_until(lambda: list(out.glob("runs/cpu/.*.work")), process)
        workers = psutil.Process(process.pid).children(recursive=True)
        stop(process, how)
    assert all_end(workers)
    before = complete(out)
    assert len(before) == 2
    assert (out / decoders.CSV).exists(), "of the experiment that was complete"
    done = run_main(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 cells measured, 2 reused" in done.stdout
    assert before.items() <= complete(out).items()
    assert not list(out.glob("runs/*/.*")), "scratch folders and partial records are left"
    assert read_columns(out / decoders.CSV) == list(decoders.COLUMNS)
    (row,) = read_table(out / decoders.CSV)
    assert (row["image_set"], row["decoder"], row["status"]) == ("original", "pil", "ok")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill -9", "Ctrl-C"])
def test_stopped_before_the_end_of_an_experiment(
    how: str, arguments: list[str], tmp_path: Path
) -> None:
    """What was measured of it is published and packed all the same."""
    out = tmp_path / "data"
    arguments += ["model.service_ms=2000", "--experiment", "serial"]
    with started(arguments) as process:
        wait_until(lambda: len(complete(out)) == 1, process)
        stop(process, how)
    (measured,) = complete(out)
    assert [record.cell.label for record in records.load_experiment(out / "runs", "serial")] == [
        records.load(measured).cell.label
    ]
    folders = ["--out", str(out), "--figures", str(tmp_path / "figures")]
    assert paper(["figures", *folders]) == 0
    reference = str(tmp_path / "reference")
    assert paper(["check", "--pack", str(out / "runs"), "--reference", reference]) == 0


@pytest.mark.parametrize("how", ["kill -9", "Ctrl-C"])
@pytest.mark.slow
def test_stopped_while_rendering(how: str, tmp_path: Path) -> None:
    cache = tmp_path / "data" / "corpora"
    arguments = ["--n", "3000", "--experiment", "decoders", *short_run(tmp_path)]
    arguments += ["experiment.decoders.images={small_256:3000}"]
    with started(arguments) as process:
        wait_until(lambda: len(list(cache.rglob("*.jpg"))) > 20, process)
        stop(process, how)
    assert not list(cache.rglob("*.csv")), "a manifest of what was not rendered"
    for path in cache.rglob("*.jpg"):
        assert path.read_bytes()[-2:] == b"\xff\xd9"
    for path in cache.rglob("*.json"):
        json.loads(path.read_text(encoding="utf-8"))
