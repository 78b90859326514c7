"""Stopped at any moment: no partial record, no process left, and the same command resumes."""

import json
import os
import random
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
from paper import diff
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


def wait_for_cells(n: int, out: Path, process: subprocess.Popen[str]) -> None:
    wait_until(lambda: len(complete(out)) >= n, process)


def kill_worker(process: subprocess.Popen[str], before: int = 0) -> int:
    """Kill the run's next worker after this one; its process id, or 0 where the run has ended."""
    while process.poll() is None:
        for child in psutil.Process(process.pid).children():
            with suppress(psutil.NoSuchProcess):
                if child.pid != before and "harness.worker" in child.cmdline():
                    child.kill()
                    return child.pid
        time.sleep(0.005)
    return 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_five_workers_killed_at_random(
    arguments: list[str], run_main: RunMain, tmp_path: Path
) -> None:
    """Every other one at its second try, too: then the cell is a row, and what a rerun measures."""

    few = [
        "experiment.decoders.decoders=[pil,opencv]",
        "experiment.serial.recipes=[{name: pil, decoder: pil, resizer: pil}]",
    ]

    def in_folder(name: str) -> list[str]:
        where = [f"out={tmp_path / name / 'data'}", f"figures={tmp_path / name / 'figures'}"]
        return [*arguments[:-2], *where, *few, "--experiment", "serial,decoders,cpu"]

    def left_by(name: str) -> set[str]:
        files = [path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*.*")]
        return {str(path) for path in files if not {"runs", "corpora"} & {*path.parts}}

    whole = run_main(*in_folder("whole"), timeout=300)
    assert whole.returncode == 0, whole.stderr
    n_cells = len(complete(tmp_path / "whole" / "data"))
    rng = random.Random(67)
    for index in range(5):
        name = f"round-{index}"
        out = tmp_path / name / "data"
        with started(in_folder(name)) as process:
            n_before = rng.randrange(n_cells - 1)
            wait_for_cells(n_before, out, process)
            time.sleep(rng.uniform(0, 0.3))  # in a cell, or between two
            pid = kill_worker(process)
            if twice := index % 2 == 0:
                assert kill_worker(process, pid)
            _, errors = process.communicate(timeout=300)
        assert pid, "the run ended before its moment"
        assert process.returncode == twice, errors
        assert "Traceback" not in errors
        last = errors.splitlines()[-1]
        assert last.endswith(("", ": killed by SIGKILL (out of memory?)")[twice])
        assert ("crashed once, and was measured at the second try" in last) != twice
        rows = [row for path in out.glob("*-*.csv") for row in read_table(path)]
        assert any(row["status"] == "error" for row in rows) == twice
        assert {"data/claims.csv", "figures/report.html"} < left_by(name)
        again = run_main(*in_folder(name), timeout=300)
        assert again.returncode == 0, again.stderr
        assert f"{int(twice)} cells measured, " in again.stdout
        assert left_by(name) == left_by("whole")
        compared = diff.compare(tmp_path / "whole" / "data", out, 1e9)
        assert compared.one_sided == []
        for difference in compared.differences:
            assert float(difference.a) != float(difference.b), "a text would raise ValueError"


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
