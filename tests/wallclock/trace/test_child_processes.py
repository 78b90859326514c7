"""Threads and processes of a traced program: counts, samples, and what a kill leaves."""

import signal
from pathlib import Path

import pytest

from tests import making
from tests.wallclock.trace.programs import Done, trace, write
from wallclock.trace.page import Findings
from wallclock.trace.record import Function
from wallclock.trace.shares import OTHER, OTHER_WAITS, Shares

CHILDREN = """
import multiprocessing, os, signal, subprocess, sys, threading
from concurrent.futures import ThreadPoolExecutor
from PIL import Image

path, kind = sys.argv[1:]

def load(number=0):
    return Image.open(path).convert("RGB").resize((8, 8)).size

def serve(inbox, outbox):
    for _ in iter(inbox.get, None):
        outbox.put(load())

if __name__ == "__main__":
    if kind == "threads":
        with ThreadPoolExecutor(2) as pool:
            assert len(list(pool.map(load, range(6)))) == 6
        idle = ThreadPoolExecutor(3)
        assert idle.submit(abs, -1).result() == 1
        thread = threading.Thread(target=load)
        thread.start()
        thread.join()
    elif kind == "fork alone":
        if os.fork() == 0:
            load()
            os._exit(0)
        os.wait()
        subprocess.run([sys.executable, "-c", "from PIL import Image"], check=True)
    else:
        context = multiprocessing.get_context(kind.partition(" ")[0])
        boxes = context.Queue(), context.Queue()
        child = context.Process(target=serve, args=boxes)
        child.start()
        for _ in range(2):
            boxes[0].put(1)
            boxes[1].get()
        if kind.endswith("killed"):
            os.kill(child.pid, signal.SIGKILL)
        else:
            boxes[0].put(None)
        child.join()
    load()
"""


def children(folder: Path, kind: str) -> Done:
    (folder / "photo.jpg").write_bytes(making.jpeg(64, 48))
    done = trace(write(folder, CHILDREN), "photo.jpg", kind, cwd=folder)
    assert (done.stdout, done.stderr) == ("", "")
    assert done.trace.exit_code == 0
    assert not [process for process in done.trace.processes[1:] if process.role == "main"]
    assert done.main()[Function("decode", "PIL.Image.open")].calls == 1
    return done


def test_threads(tmp_path: Path) -> None:
    done = children(tmp_path, "threads")
    workers = done.trace.threads(of_workers=True)
    loads = [thread.spent[Function("decode", "PIL.ImageFile.load")].images for thread in workers]
    assert sum(loads) == 7
    for thread in workers:
        assert (
            sum(spent.seconds for spent in thread.spent.values())
            <= thread.ended_s - thread.started_s
        )


def test_fork(tmp_path: Path) -> None:
    done = children(tmp_path, "fork alone")
    assert [process.role for process in done.trace.processes] == ["main", "worker", "other"]
    assert all(process.cpu_s for process in done.trace.processes)
    assert done.images("decode") == 2


@pytest.mark.parametrize("kind", ["fork", "spawn", "fork killed"])
def test_multiprocessing(kind: str, tmp_path: Path) -> None:
    done = children(tmp_path, kind)
    (worker,) = [process for process in done.trace.processes if process.role == "worker"]
    assert kind.endswith("killed") or 0 < (worker.cpu_s or 0) < done.trace.wall_s
    (thread,) = [thread for thread in worker.threads if thread.is_main]
    assert thread.spent[Function("decode", "PIL.ImageFile.load")].images == 2
    assert done.calls("send", "multiprocessing.reduction.ForkingPickler.dumps") >= 4


KILLED = """
import os, signal, sys, time
from PIL import Image
class Slow(Image.Image):
    def load(self):
        os.kill(os.getpid(), int(sys.argv[1]))
        time.sleep(5)
Image.new("RGB", (8, 8)).resize((4, 4))
image = Slow()
image._size = (8, 8)
image._mode = "RGB"
Image.Image.resize(image, (4, 4))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_program_tells_what_it_was_doing(number: int, tmp_path: Path) -> None:
    done = trace(write(tmp_path, KILLED), str(int(number)), cwd=tmp_path)
    assert done.trace.exit_code == 128 + number
    spent = done.main()[Function("resize", "PIL.Image.resize")]
    assert (spent.calls, spent.images) == (2, 1)


EXEC = """
import os, sys
from PIL import Image
Image.new("RGB", (8, 8)).resize((4, 4))
try:
    os.execv("/absent/python", ["python"])
except FileNotFoundError:
    print("goes on", flush=True)
if len(sys.argv) == 1:
    os.execv(sys.executable, [sys.executable, __file__, "again"])
"""


def test_a_program_that_replaces_itself(tmp_path: Path) -> None:
    done = trace(write(tmp_path, EXEC), cwd=tmp_path)
    assert done.stdout == "goes on\n" * 2
    (process,) = done.trace.processes
    assert process.role == "main"
    assert done.images("resize") == 2
    shares = Shares(done.trace)
    assert shares.main.wall_s == pytest.approx(shares.steady_s)
    assert shares.main.title == "main process"


def test_a_fork_that_cannot_count(tmp_path: Path) -> None:
    """Its folder is gone or full; the parent's counts are as before."""
    source = """
    import os
    from PIL import Image
    folder = os.environ["WALLCLOCK_TRACE"]
    os.rename(folder, folder + ".moved")
    if os.fork() == 0:
        Image.new("RGB", (8, 8)).resize((4, 4))
        os._exit(0)
    os.wait()
    os.rename(folder + ".moved", folder)
    Image.new("RGB", (8, 8)).resize((4, 4))
    """
    done = trace(write(tmp_path, source), cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("", "")
    assert len(done.trace.processes) == 1
    assert done.images("resize") == 1


def test_launched_programs_are_the_main_ones(tmp_path: Path) -> None:
    """As torchrun launches the processes that train: onnxruntime stands in for the model."""
    package = tmp_path / "onnxruntime" / "capi"
    package.mkdir(parents=True)
    write(package.parent, "", "__init__.py")
    write(
        package,
        "class Session:\n    def run(self, names, feed):\n        return []",
        "onnxruntime_inference_collection.py",
    )
    write(
        tmp_path,
        "from onnxruntime.capi.onnxruntime_inference_collection import Session\n"
        "Session().run(None, {})",
        "model.py",
    )
    source = """
    import subprocess, sys
    ranks = [subprocess.Popen([sys.executable, "model.py"]) for _ in range(2)]
    assert not any(rank.wait() for rank in ranks)
    """
    done = trace(write(tmp_path, source), cwd=tmp_path)
    assert done.trace.exit_code == 0
    assert [process.role for process in done.trace.processes] == ["other", "main", "main"]
    assert done.main()[Function("forward", "onnxruntime.InferenceSession.run")].calls == 2
    assert Shares(done.trace).main.title == "2 ranks"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_pool_ends_its_workers(method: str, tmp_path: Path) -> None:
    source = f"""
    import multiprocessing
    from PIL import Image
    def load(number):
        return Image.new("RGB", (8, 8)).resize((4, 4)).size
    if __name__ == "__main__":
        with multiprocessing.get_context("{method}").Pool(2) as pool:
            pool.map(load, range(4))
    """
    done = trace(write(tmp_path, source), cwd=tmp_path)
    assert done.images("resize") == 4
    assert "killed" not in "".join(Findings(done.trace).notes)


def test_a_process_that_is_not_traced(tmp_path: Path) -> None:
    child = "import time\nwhile time.process_time() < 1.5: pass"
    source = f"import subprocess, sys; subprocess.run([sys.executable, '-I', '-c', {child!r}])"
    assert trace(write(tmp_path, source), cwd=tmp_path).trace.untraced_s > 0.5
    assert trace("-c", child, cwd=tmp_path).trace.untraced_s < 0.5
    at_the_end = """
    import time
    class Large:
        def __del__(self, clock=time.process_time):
            end = clock() + 0.6
            while clock() < end: pass
    large = Large()
    """
    assert trace(write(tmp_path, at_the_end), cwd=tmp_path).trace.untraced_s < 0.5


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
