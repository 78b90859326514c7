"""The command in processes of its own, stopped, and killed at random moments of its work."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.killing import Job, kill_at_random, run_undisturbed
from tests.running import PATH, run_python
from tests.wallclock.job.conftest import QUICK, Content, content, opened
from tests.wallclock.job.test_records import SOURCES
from wallclock.job.verify import verify


def command(src: Path, out: Path, **settings: object) -> list[str]:
    words = [f"{name}={value}" for name, value in {**QUICK, **settings}.items()]
    return [sys.executable, "-m", "wallclock", "embed", str(src), str(out), *words]


def start(command: list[str]) -> subprocess.Popen[str]:
    env = {**os.environ, **PATH}
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
    words = command(images, tmp_path / "out")[1:]
    with open("/dev/full", "wb") as full:
        done = run_python(*words, capture_output=False, stderr=full, stdout=full)
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


#: At least so many kills of each setting.
KILLS = int(os.environ.get("WALLCLOCK_KILLS", "20"))

#: The command, with its commits as phases.
PHASED = """
import sys
from wallclock.job.dataset import Dataset
from wallclock.job.stores.folder import Folder
from wallclock.__main__ import main

def phased(name, function):
    def call(*arguments, **options):
        print("phase", name, flush=True)
        result = function(*arguments, **options)
        print("phase work", flush=True)
        return result
    return call

for owner, name in ((Folder, "remove_leftovers"), (Dataset, "describe"), (Dataset, "commit")):
    setattr(owner, name, phased(name, getattr(owner, name)))
sys.exit(main())
"""


def vectors(out: Path | str) -> Iterator[tuple[str, bytes]]:
    """Every image with its vector's bytes, or with why it has none."""
    dataset = opened(out)
    for number in dataset.committed():
        ids = dataset.rows(number, ["id"])["id"].to_pylist()
        yield from zip(ids, map(bytes, dataset.vectors(number)), strict=True)
        for row in dataset.failures(number):
            yield row["id"], row["reason"].encode()


def files_and_vectors(out: Path) -> Iterator[tuple[str, bytes]]:
    """Also every file of a part."""
    yield from vectors(out)
    for path in out.rglob("part-*"):
        if path.is_file():
            yield path.relative_to(out).as_posix(), path.read_bytes()


def kill_some(rng: random.Random) -> Callable[[int], None]:
    """What kills the job's process group, its parent alone, or one of its children."""

    def kill(pid: int) -> None:
        victim = rng.choice(("group", "group", "parent", "child"))
        with suppress(ProcessLookupError, psutil.NoSuchProcess):  # it has ended meanwhile
            children = psutil.Process(pid).children(recursive=True)
            if victim == "group":
                os.killpg(pid, signal.SIGKILL)
            elif victim == "child" and children:
                rng.choice(children).kill()
            else:
                os.kill(pid, signal.SIGKILL)

    return kill


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(10))
def test_exactly_once(images: Path, tmp_path: Path, seed: int) -> None:
    """WALLCLOCK_KILLS kills for each of ten random settings and sources, of all processes or one.

    No process is left, no byte of a part differs, and `verify` finds no fault.
    """
    rng = random.Random(seed)
    sizes = {"batch": rng.randint(1, 9), "shard": rng.randint(1, 20), "workers": rng.randint(1, 4)}
    write = [lambda _: str(images), *SOURCES.values()][seed % (1 + len(SOURCES))]
    src, is_stream = write(tmp_path), seed % (1 + len(SOURCES)) > 1
    sizes["processes"] = 1 if is_stream else rng.randint(1, 3)
    settings = {**QUICK, **sizes, "service_ms": 15}
    settings["deduplicate"] = rng.choice(("true", "false"))
    words = [f"{name}={value}" for name, value in settings.items()]
    job = Job(
        lambda out: [sys.executable, "-c", PHASED, "embed", src, str(out), *words],
        files_and_vectors,
        env=PATH,
        victim=kill_some(rng),
    )
    kills = Counter[str]()
    undisturbed = run_undisturbed(job, tmp_path / "undisturbed")
    for attempt in itertools.count():  # a job on a busy machine may end before a moment comes
        out = tmp_path / f"{attempt}"
        out.mkdir()
        rounds = max(2, (KILLS - kills.total()) // 2)
        report = kill_at_random(job, out, seed + 100 * attempt, rounds, 4, undisturbed)
        assert report.exactly_once, report
        # Else an orphan is left, or a process that is gone is no line.
        assert not [text for text in report.aborted if "still running" in text]
        assert not [text for text in report.aborted if "Traceback" in text]
        kills += report.kills
        if kills.total() >= KILLS:
            break
        assert attempt < 10, kills
    assert kills.keys() > {"work"} or KILLS < 20
    for folder in tmp_path.glob("*/round-*"):
        assert verify(folder, n=4).faults == ()
    print(f"{kills.total()} kills: {dict(kills)}")
