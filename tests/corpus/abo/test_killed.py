"""Killed at any moment, or out of disk: the next run goes on, and the corpus is the same byte for byte."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, popen_interruptible
from tests.corpus.abo import bucket
from tests.corpus.abo.conftest import Corpus, intact
from tests.corpus.abo.fault_proxy import FaultProxy
from wallclock.errors import UserError

#: Images; with four threads and `DELAY_S` an answer they take about a second.
N = 300
DELAY_S = 0.01


@pytest.fixture(scope="module")
def many() -> dict[str, bytes]:
    """The same few pictures under many names: what differs is where they go."""
    few = list(bucket.objects(20, 256).values())[3:]
    found = {
        "images/metadata/images.csv.gz": bucket.catalogue(bucket.rows(N)),
        "README.md": bucket.README,
    }
    for number, row in enumerate(bucket.rows(N)):
        # A comment at the end makes each file its own.
        found[f"images/small/{row[3]}"] = few[number % len(few)] + b"%d" % number
    return found


@pytest.fixture(scope="module")
def slow(many: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    """The store, slow enough to be interrupted."""
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    tree = tmp_path_factory.mktemp("many")
    bucket.write(many, tree)

    class Quiet(SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(tree))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with FaultProxy(server.server_address[1]) as proxy:
            proxy.delay_s = DELAY_S
            yield proxy
        server.shutdown()


@pytest.fixture(scope="module")
def whole(slow: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an uninterrupted run leaves."""
    cache = tmp_path_factory.mktemp("whole") / "corpora"
    assert finish(start(slow, cache)) == ""
    return contents(cache)


def start(proxy: FaultProxy, cache: Path, *limit: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "tests.corpus.abo.fetch_once",
        proxy.endpoint,
        str(cache),
        str(N),
        *limit,
    ]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'code'}"}
    process = popen_interruptible(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    # Only from here on is there anything to interrupt.
    assert process.stdout.readline() == "ready\n"
    return process


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a run that goes well; what it wrote to standard error."""
    _, words = process.communicate(timeout=60)
    assert process.returncode == 0, words
    return words


def contents(cache: Path) -> dict[str, bytes]:
    """Every file by its path, but for the manifest's companion, which says where the images lie."""
    (folder,) = cache.glob("abo-*")
    files = (path for path in folder.rglob("*") if path.is_file())
    found = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    del found["small_256-first256-seed0.json"]
    return found


def killed_and_resumed(proxy: FaultProxy, cache: Path, kills: int, seed: int) -> list[int]:
    """Kill runs at random moments, then let one finish; return how many images each kill left."""
    rng = random.Random(seed)
    left = []
    for _ in range(kills):
        process = start(proxy, cache)
        time.sleep(rng.uniform(0.0, 1.1))
        process.kill()
        process.communicate()
        left.append(len(list(cache.glob("abo-*/small_256/??/*.jpg"))))
    assert finish(start(proxy, cache)) == ""
    return left


def test_killed_three_times(slow: FaultProxy, whole: dict[str, bytes], tmp_path: Path) -> None:
    left = killed_and_resumed(slow, tmp_path, 3, seed=1)
    assert left == sorted(left), "nothing that arrived is lost"
    assert contents(tmp_path) == whole


@pytest.mark.slow
def test_killed_at_twenty_random_moments(
    slow: FaultProxy, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """Ten corpora, each killed twice: at the start, in the middle, while the manifest is written."""
    middle = 0
    for number in range(10):
        left = killed_and_resumed(slow, tmp_path / str(number), 2, seed=number)
        middle += sum(0 < count < N for count in left)
        assert contents(tmp_path / str(number)) == whole
    assert middle >= 5, "the kills missed the fetch"


def test_interrupted_by_hand_it_ends_at_once_and_goes_on(
    slow: FaultProxy, whole: dict[str, bytes], tmp_path: Path
) -> None:
    process = start(slow, tmp_path)
    time.sleep(0.8)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    process.communicate(timeout=20)
    assert time.monotonic() - began < 5
    assert process.returncode != 0
    finish(start(slow, tmp_path))
    assert contents(tmp_path) == whole


def test_a_limit_on_file_size_is_a_full_disk(
    slow: FaultProxy, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """The journal is the first file to grow over the limit: every root or not can try this."""
    process = start(slow, tmp_path, "20000")
    _, words = process.communicate(timeout=60)
    assert process.returncode == 1
    assert words.startswith("no space left in")
    assert words.count("\n") == 1
    assert "the same command goes on" in words
    assert not list(tmp_path.rglob("*.part"))
    finish(start(slow, tmp_path))
    assert contents(tmp_path) == whole


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mount") is None, reason="only root may mount a small disk"
)
def test_a_full_disk_stops_cleanly_and_the_run_goes_on(
    slow: FaultProxy, many: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mount(size: str) -> int:
        options = f"size={size}{',remount' if tmp_path.is_mount() else ''}"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(tmp_path)]
        return subprocess.run(command, capture_output=True, check=False).returncode

    if mount("500k"):
        pytest.skip("root may not mount here")
    try:
        # The checks that would stop it earlier.
        monkeypatch.setattr("wallclock.corpus.abo.cost.MARGIN", 0.0)
        monkeypatch.setattr("wallclock.corpus.abo.pacing._FREE_BYTES", 0)
        corpus = Corpus(tmp_path, slow.endpoint)
        corpus.settings["prefixes"] = {"small_256": 256, "original": 256}
        with pytest.raises(
            UserError, match=r"no space left in .*; free some; what has arrived is kept"
        ):
            corpus(n=N)
        arrived = len(list(tmp_path.glob("abo-*/small_256/??/*.jpg")))
        assert arrived > 10
        before = slow.total
        assert mount("50m") == 0
        assert intact(corpus(n=N), many)
        assert slow.total - before <= N - arrived + 20, "what had arrived was asked for again"
    finally:
        # Lazily: a thread of the fetch may still hold a file for a moment.
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=False)


def test_it_stops_before_the_disk_is_full(
    slow: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wallclock.corpus.abo.pacing._FREE_BYTES", 1 << 60)
    corpus = Corpus(tmp_path, slow.endpoint)
    corpus.settings["prefixes"] = {"small_256": 256, "original": 256}
    with pytest.raises(UserError, match="no space left in"):
        corpus(n=N)
