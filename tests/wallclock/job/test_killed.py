"""`wallclock embed` killed at random moments of its start, its work and its commits."""

import itertools
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT
from tests.killing import Job, kill_at_random, run_undisturbed
from tests.wallclock.job.conftest import QUICK
from tests.wallclock.job.test_records import SOURCES
from wallclock.job.dataset import open_existing
from wallclock.job.verify import verify

#: At least so many kills of each setting.
KILLS = int(os.environ.get("WALLCLOCK_KILLS", "20"))

#: The command, with its commits as phases.
PHASED = """
import sys
from wallclock.job.dataset import Dataset
from wallclock.job.stores.folder import Folder
from wallclock.job.stores.s3 import S3
from wallclock.__main__ import main

def phased(name, function):
    def call(*arguments, **options):
        print("phase", name, flush=True)
        result = function(*arguments, **options)
        print("phase work", flush=True)
        return result
    return call

METHODS = ((Folder, "remove_leftovers"), (S3, "remove_leftovers"), (Dataset, "describe"))
for owner, name in (*METHODS, (Dataset, "commit")):
    setattr(owner, name, phased(name, getattr(owner, name)))
sys.exit(main())
"""


def vectors(out: Path | str) -> Iterator[tuple[str, bytes]]:
    """Every image with its vector's bytes, or with why it has none."""
    dataset = open_existing(out)
    assert dataset is not None
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
        env={"PYTHONPATH": str(ROOT / "code")},
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
