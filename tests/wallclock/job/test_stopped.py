"""The command in a process of its own: killed, stopped, twice at once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.wallclock.job.conftest import QUICK, Content, content
from wallclock.__main__ import main


def command(src: Path, out: Path, **settings: object) -> list[str]:
    words = [f"{name}={value}" for name, value in {**QUICK, **settings}.items()]
    return [sys.executable, "-m", "wallclock", "embed", str(src), str(out), *words]


def start(command: list[str]) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "code")}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env=env, stdout=pipe, stderr=pipe, start_new_session=True, text=True
    )


def finish(command: list[str]) -> str:
    """Run a command to its end; what it printed."""
    process = start(command)
    printed, errors = process.communicate(timeout=100)
    assert (process.returncode, errors) == (0, "")
    return printed


def wait_for_part(out: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not (out / "part-00000.parquet").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("how", "processes"),
    [
        (signal.SIGTERM, 1),
        (signal.SIGTERM, 2),
        *(
            pytest.param(how, processes, marks=pytest.mark.slow)
            for how in (signal.SIGINT, signal.SIGKILL)
            for processes in (1, 2)
        ),
    ],
)
def test_stopped_and_started_again(
    how: signal.Signals, processes: int, images: Path, reference: Content, tmp_path: Path
) -> None:
    """In the second of three shards; the next start makes what is missing, and no more."""
    out = tmp_path / "out"
    process = start(command(images, out, service_ms=150, processes=processes))
    wait_for_part(out, process)
    process.send_signal(how)
    _, errors = process.communicate(timeout=30)
    if how != signal.SIGKILL:
        assert process.returncode == 128 + how
        line = "wallclock: stopped; finished parts are kept; run the same command again to resume"
        assert errors.strip() == line
    before = (out / "part-00000.parquet").stat().st_mtime_ns
    printed = finish(command(images, out))
    assert "39 vectors, 2 failed, 0 skipped in 3 parts" in printed
    assert (out / "part-00000.parquet").stat().st_mtime_ns == before
    assert content(out) == reference


def test_a_full_disk_behind_standard_error(
    images: Path, reference: Content, tmp_path: Path
) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "code")}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command(images, tmp_path / "out"), env=env, stderr=full, stdout=full, check=False
        )
    assert done.returncode == 0
    assert content(tmp_path / "out") == reference


def test_too_little_address_space_is_one_line(images: Path, tmp_path: Path) -> None:
    """Where a thread cannot be started, the interpreter may wait for it for ever."""
    limited = ["bash", "-c", 'ulimit -v 2000000; exec "$@"', "-"]
    process = start([*limited, *command(images, tmp_path / "out")])
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.startswith("wallclock: ulimit -v is 2.0 GB, and ")
    assert errors.count("\n") == 1


def test_no_thread_left_is_one_line(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("wallclock.loader.joinable_thread.JoinableThread.start", refuse)
    assert main(command(images, tmp_path / "out")[3:]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("wallclock: out of memory or threads; set fewer workers=")
