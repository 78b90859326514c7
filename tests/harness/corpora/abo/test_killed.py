"""Killed at any moment, or out of disk: the next run resumes, and the corpus is the same bytes."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.harness.corpora.abo import bucket
from tests.harness.corpora.abo.conftest import Corpus
from tests.harness.corpora.abo.faulty_store import FaultyStore
from wallclock.errors import UserError

#: Images; with four threads and `DELAY_S` a response they take about a second.
N = 300
DELAY_S = 0.01
ALL = {"small_256": 256, "original": 256}


@pytest.fixture(scope="module")
def many() -> dict[str, bytes]:
    """A few images under many paths, each made unique by bytes behind its end."""
    few = list(bucket.objects(20, 256).values())[1:]
    many = {bucket.CATALOGUE: bucket.catalogue(bucket.rows(N))}
    for number, row in enumerate(bucket.rows(N)):
        many[f"images/small/{row[3]}"] = few[number % len(few)] + b"%d" % number
    return many


@pytest.fixture(scope="module")
def slow(many: dict[str, bytes]) -> Iterator[FaultyStore]:
    """A store slow enough to be interrupted."""
    with FaultyStore(many) as store:
        store.delay_s = DELAY_S
        yield store


@pytest.fixture(scope="module")
def uninterrupted(slow: FaultyStore, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files that an uninterrupted run leaves."""
    cache = tmp_path_factory.mktemp("uninterrupted") / "corpora"
    assert finish(start(slow, cache)) == ""
    return contents(cache)


def start(store: FaultyStore, cache: Path, *limit: str) -> subprocess.Popen[str]:
    module, pipe = "tests.harness.corpora.abo.fetch_once", subprocess.PIPE
    command = [sys.executable, "-m", module, store.endpoint, str(cache), str(N), *limit]
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'code'}"}
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    # Before this there is nothing to interrupt.
    assert process.stdout.readline() == "ready\n"
    return process


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for a run that succeeds; return its standard error."""
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    return stderr


def contents(cache: Path) -> dict[str, bytes]:
    """Every file by path, but for the manifest's companion, which contains the cache's path."""
    files = {path for path in cache.rglob("*") if path.is_file()}
    files -= {*cache.glob("abo-*/small_256-first256-seed0.json")}
    return {str(path.relative_to(cache)): path.read_bytes() for path in files}


def wait_for_images(process: subprocess.Popen[str], cache: Path, n: int) -> None:
    """Wait until `n` images have arrived, or the run has ended."""
    while arrived(cache) < n and process.poll() is None:
        time.sleep(0.005)


def arrived(cache: Path) -> int:
    return len(list(cache.glob("abo-*/small_256/??/*.jpg")))


@pytest.mark.timeout(1200)
@pytest.mark.slow
@pytest.mark.parametrize(("corpora", "kills"), [(1, 3), (10, 2)])
def test_killed_at_random_moments(
    slow: FaultyStore, uninterrupted: dict[str, bytes], tmp_path: Path, corpora: int, kills: int
) -> None:
    """Early, midway, or while the manifest is written."""
    interrupted = 0
    for number in range(1, corpora + 1):
        cache = tmp_path / f"{number}"
        rng = random.Random(number)
        left = [0]
        for _ in range(kills):
            process = start(slow, cache)
            wait_for_images(process, cache, rng.randint(left[-1], N))
            time.sleep(rng.uniform(0, 0.02))
            process.kill()
            process.communicate()
            left.append(arrived(cache))
        assert left == sorted(left), "nothing that arrived is lost"
        interrupted += sum(0 < count < N for count in left)
        finish(start(slow, cache))
        assert contents(cache) == uninterrupted
    assert interrupted >= corpora / 2, "the kills missed the fetch"


def test_ctrl_c_ends_at_once_and_resumes(
    slow: FaultyStore, uninterrupted: dict[str, bytes], tmp_path: Path
) -> None:
    process = start(slow, tmp_path)
    wait_for_images(process, tmp_path, 20)
    process.send_signal(signal.SIGINT)
    # Far below the minutes that retries and timeouts could take.
    process.communicate(timeout=20)
    assert process.returncode != 0
    assert arrived(tmp_path) < N
    finish(start(slow, tmp_path))
    assert contents(tmp_path) == uninterrupted


@pytest.mark.slow
def test_file_size_limit_is_a_full_disk(
    slow: FaultyStore, uninterrupted: dict[str, bytes], tmp_path: Path
) -> None:
    """The journal is the first file to exceed the limit; this needs no root."""
    process = start(slow, tmp_path, "20000")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert stderr.startswith("a file reached its size limit")
    assert stderr.count("\n") == 1
    assert "run the same command again" in stderr
    assert not list(tmp_path.rglob("*.tmp"))
    finish(start(slow, tmp_path))
    assert contents(tmp_path) == uninterrupted


def test_it_stops_before_the_disk_is_full(
    slow: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.corpora.abo.fetch._FREE_BYTES", 1 << 60)
    with pytest.raises(UserError, match="no space left in"):
        Corpus(tmp_path, slow.endpoint)(n=N, prefixes=ALL)
