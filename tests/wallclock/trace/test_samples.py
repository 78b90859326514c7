"""What samples tell: the user's line, work or a wait, whatever a program calls."""

from pathlib import Path

import pytest

from tests import making
from tests.wallclock.trace.programs import Done, trace, write
from wallclock.trace.page import Findings
from wallclock.trace.shares import OTHER, OTHER_WAITS, Shares

LOAD = """
import os, sys, threading, time
from PIL import Image

def load():
    return Image.open("photo.jpg").convert("RGB").resize((8, 8))

"""


def traced(folder: Path, source: str) -> Done:
    (folder / "photo.jpg").write_bytes(making.jpeg(64, 48))
    done = trace(write(folder, LOAD + source), cwd=folder)
    assert (done.stderr, done.trace.exit_code) == ("", 0)
    return done


def test_the_line_of_other_python(tmp_path: Path) -> None:
    done = traced(tmp_path, "load()\nend = time.time() + 0.6\nwhile time.time() < end:\n    pass\n")
    shares = Shares(done.trace)
    row = shares.main.largest(OTHER, OTHER_WAITS)
    assert row is not None
    assert (row.stage, row.call) == (OTHER, "")
    assert row.place in ("program.py:10", "program.py:11")
    assert row.place in Findings(done.trace).verdict.text


def test_a_wait_by_any_call(tmp_path: Path) -> None:
    """No list of waits has what a library may call; the thread uses no core."""
    source = "load()\nread, written = os.pipe()\n"
    source += "threading.Timer(0.6, os.write, (written, b'.')).start()\nos.read(read, 1)\n"
    done = traced(tmp_path, source)
    row = Shares(done.trace).main.largest(OTHER, OTHER_WAITS)
    assert row is not None
    assert (row.stage, row.place) == (OTHER_WAITS, "program.py:11")
    assert "The main process waits" in Findings(done.trace).verdict.text


def test_a_main_thread_beside_workers_waits_for_them(tmp_path: Path) -> None:
    """As joblib does: it sleeps and looks whether they are done."""
    source = """
def work():
    end = time.time() + 0.6
    while time.time() < end:
        load()

thread = threading.Thread(target=work)
thread.start()
while thread.is_alive():
    time.sleep(0.1)
"""
    main = Shares(traced(tmp_path, source).trace).main
    assert main.share("wait") > 1 / 2
    assert main.share(OTHER) < 1 / 2


def test_no_thread_of_ours_during_a_fork(tmp_path: Path) -> None:
    """Python 3.12 warns of a fork in a process with threads."""
    source = """
import os
os.register_at_fork(before=lambda: print(len(os.listdir("/proc/self/task")), flush=True))
for _ in range(20):
    if os.fork() == 0:
        load()
        os._exit(0)
    os.wait()
print(threading.active_count(), [thread.name for thread in threading.enumerate()])
"""
    done = traced(tmp_path, source)
    assert done.stdout == "1\n" * 20 + "1 ['MainThread']\n"
    assert done.images("decode") == 20


def test_the_end_of_the_interpreter_is_apart(tmp_path: Path) -> None:
    """Nor is it where the program spent its time."""
    done = traced(tmp_path, "import atexit\natexit.register(time.sleep, 0.6)\nload()\n")
    shares = Shares(done.trace)
    assert shares.exit_s >= 0.6
    assert shares.startup_s + shares.steady_s <= done.trace.wall_s - 0.6


def test_a_process_that_is_killed(tmp_path: Path) -> None:
    source = "import signal\ntime.sleep(0.8)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    script = write(tmp_path, LOAD + source)
    (process,) = trace(script, cwd=tmp_path).trace.processes
    samples = process.threads[0].samples
    assert (samples[0].path, samples[0].line) == (str(script), 9)
    assert process.cpu_s, "as of its last samples"


def test_work_and_waits_in_turn(tmp_path: Path) -> None:
    """Each shorter than the time between two samples."""
    source = """
import zlib
load()
data = os.urandom(150_000)
end, waited = time.perf_counter() + 2, 0.0
while time.perf_counter() < end:
    time.sleep(0.006)
    waited += 0.006  # what comes on top is a wait for a core
    zlib.compress(data)
print(waited / 2)
"""
    done = traced(tmp_path, source)
    main = Shares(done.trace).main
    waits = main.share(OTHER_WAITS) / main.share(OTHER, OTHER_WAITS)
    assert waits == pytest.approx(float(done.stdout), abs=0.25)
