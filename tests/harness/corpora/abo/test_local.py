"""What is on the disk: kept or fetched again; `corpus=abo` on the command line."""

import fcntl
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.cpu import cells as cpu
from harness.corpora.abo.fetch import append, read_journal
from harness.corpora.abo.prepare import ATTRIBUTION
from harness.corpora.manifest import Item
from harness.table import read_table
from tests.conftest import RunMain
from tests.harness.corpora.abo import bucket
from tests.harness.corpora.abo.conftest import Corpus, N, intact
from tests.harness.corpora.abo.faulty_store import FaultyStore
from wallclock.errors import ImageError, UserError

LIST = "small_256-first70-seed0"


def test_damage_is_repaired(corpus: Corpus, store: FaultyStore) -> None:
    manifest = corpus()
    paths = [manifest.root / item.path for item in manifest.items]
    paths[0].unlink()
    paths[1].write_bytes(paths[1].read_bytes()[:50])
    paths[2].write_bytes(paths[2].read_bytes()[:-9] + b"\0damaged\0")
    paths[3].unlink()
    paths[3].symlink_to(paths[4])
    before = store.total
    assert corpus() == manifest
    assert intact(manifest)
    assert not paths[3].is_symlink()
    assert store.total == before + 4
    path = corpus.folder / f"{LIST}.csv"
    path.write_bytes(path.read_bytes().replace(b"jpeg", b"jqeg", 1))
    assert corpus() == manifest, "an edited manifest is rebuilt"


def test_touched_file_and_damage_of_same_size_and_time(corpus: Corpus, store: FaultyStore) -> None:
    manifest = corpus()
    os.utime(manifest.root / manifest.items[0].path)
    item = manifest.items[5]
    path = manifest.root / item.path
    path.write_bytes(path.read_bytes()[:-2] + b"\0\0")
    os.utime(path, ns=(item.mtime_ns, item.mtime_ns))
    before = store.total
    assert corpus() == manifest
    assert store.total == before
    assert corpus(verify=True) == manifest
    assert intact(manifest)
    assert store.total == before + 1


def test_folder_that_is_a_link_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    manifest = corpus(n=1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for prefix in {row[3][:2] for row in bucket.rows(N, 70)} - {manifest.items[0].path[:2]}:
        (manifest.root / prefix).symlink_to(elsewhere)
    with pytest.raises(UserError, match="is not a folder but a link or a file: remove it"):
        corpus()
    assert not list(elsewhere.iterdir())


def test_lock_and_leftovers_of_other_runs(corpus: Corpus) -> None:
    corpus(n=1)
    left = corpus.folder / f".{LIST}.csv.x1.tmp"
    left.write_bytes(b"half")
    corpus(n=1)
    assert not left.exists()
    with (corpus.folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another run is active"):
            corpus()


def test_space_is_checked_before_any_request(
    corpus: Corpus, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"small_256": 10**15, "original": 1}
    monkeypatch.setattr("harness.corpora.abo.prepare.OBJECT_BYTES", sizes)
    line = r"40 images of small_256: 44,000,000\.00 GB are needed in .* free; free some"
    with pytest.raises(UserError, match=line):
        corpus()
    assert not [path for path in store.counts if "/small/" in path]


def test_journal_survives_a_torn_line(tmp_path: Path) -> None:
    """Wherever the last write was cut; the last line of an image counts."""
    item = Item("id", "aa/0.jpg", 10, 4, 3, "0" * 64, "jpeg", "baseline", 3, 123, "", "", "etag")
    items = [replace(item, path=f"aa/{number}.jpg", bytes=number) for number in range(4)]
    items[1] = items[1].with_failure(ImageError("read", '404 "x", — and more'))
    path = tmp_path / "journal"
    assert read_journal(path) == {}
    with path.open("ab", buffering=0) as file:
        append(file, [replace(items[0], bytes=99), *items[:3]])
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        path = tmp_path / f"{cut}"  # writing one file anew waits for the disk
        path.write_bytes(data[:cut])
        with path.open("ab", buffering=0) as file:
            append(file, items[3:])
        *before, last = read_journal(path).values()
        assert last == items[3]
        assert len(before) >= min(data[:cut].count(b"\n") - 2, 3)
        assert before == items[: len(before)] or before[0].bytes == 99
    assert before == items[:3]


#: Without a network a proxy is no way out either.
OFFLINE = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "")


def abo(experiment: str, endpoint: str, n: int, folder: Path) -> tuple[str, ...]:
    corpus = ("corpus=abo", f"corpus.endpoint={endpoint}", "--n", f"{n}")
    return ("--experiment", experiment, *corpus, f"out={folder}/data", f"figures={folder}/figures")


@pytest.mark.slow
def test_pass_from_an_empty_folder(run_main: RunMain, moto: str, tmp_path: Path) -> None:
    settings = ("model=null", "device=cpu", "repeats=1")
    done = run_main(*abo("cpu", moto, 6, tmp_path), *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    path = tmp_path / "data" / cpu.CSV
    (row,) = read_table(path)
    assert (row["corpus"], row["n_images"], row["status"]) == ("abo", 6, "ok")
    meta = json.loads(path.with_suffix(".meta.json").read_text(encoding="utf-8"))
    (corpus,) = meta["corpora"]
    assert corpus["credit"]["licence"] == "CC BY 4.0"
    assert corpus["credit"]["attribution"] == ATTRIBUTION
    assert ATTRIBUTION in (tmp_path / "figures/report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_no_network_is_one_line_soon(run_main: RunMain, tmp_path: Path) -> None:
    host = "no-such-host.invalid"
    began = time.monotonic()
    done = run_main(*abo("all", f"http://{host}", 5, tmp_path), "only=data", env=OFFLINE)
    assert time.monotonic() - began < 30
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"wallclock: cannot reach {host}: ")
    for hint in ("the network", "corpus.endpoint", "corpus=synthetic", "corpus=folder corpus.path"):
        assert hint in done.stderr
