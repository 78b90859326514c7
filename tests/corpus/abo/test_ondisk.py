"""What is on the disk already: kept where it is what arrived, fetched again where it is not."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from tests.corpus.abo import bucket
from tests.corpus.abo.conftest import Corpus, N, intact
from tests.corpus.abo.fault_proxy import FaultProxy
from wallclock.corpus import prepare
from wallclock.errors import UserError


def test_a_missing_half_or_touched_file_is_fetched_again(
    corpus: Corpus, proxy: FaultProxy, objects: dict[str, bytes]
) -> None:
    made = corpus()
    paths = [made.root / item.path for item in made.items]
    paths[0].unlink()
    paths[1].write_bytes(paths[1].read_bytes()[:50])
    paths[2].write_bytes(paths[2].read_bytes()[:-9] + b"\0damaged\0")
    paths[3].unlink()
    paths[3].symlink_to(paths[4])
    before = proxy.total
    assert corpus() == made
    assert intact(made, objects)
    assert not paths[3].is_symlink()
    assert proxy.total == before + 4


def test_a_file_that_was_only_touched_is_not(corpus: Corpus, proxy: FaultProxy) -> None:
    made = corpus()
    os.utime(made.root / made.items[0].path)
    before = proxy.total
    assert corpus() == made
    assert proxy.total == before


def test_verify_finds_damage_that_left_size_and_time(
    corpus: Corpus, proxy: FaultProxy, objects: dict[str, bytes]
) -> None:
    made = corpus()
    path, item = made.root / made.items[5].path, made.items[5]
    path.write_bytes(path.read_bytes()[:-2] + b"\0\0")
    os.utime(path, ns=(item.mtime_ns, item.mtime_ns))
    before = proxy.total
    assert corpus() == made
    assert proxy.total == before
    assert corpus(verify=True) == made
    assert intact(made, objects)
    assert proxy.total == before + 1


def test_a_folder_that_is_a_link_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    made = corpus(n=1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for prefix in {item[3][:2] for item in bucket.rows(N, 70)} - {made.items[0].path[:2]}:
        (made.root / prefix).symlink_to(elsewhere)
    with pytest.raises(UserError, match="is no folder but a link or a file: remove it"):
        corpus()
    assert not list(elsewhere.iterdir())


def test_what_a_killed_write_left_is_removed(corpus: Corpus) -> None:
    corpus(n=1)
    left = [
        corpus.folder / ".small_256.csv.x1.tmp",
        corpus.folder / "licence" / ".licence.json.x2.tmp",
    ]
    for path in left:
        path.write_bytes(b"half")
    corpus(n=1)
    assert not any(path.exists() for path in left)


def test_two_runs_do_not_share_a_folder(corpus: Corpus) -> None:
    corpus(n=1)
    with (corpus.folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another run is at work"):
            corpus()


def test_a_manifest_that_was_edited_is_made_again(
    corpus: Corpus, objects: dict[str, bytes]
) -> None:
    made = corpus()
    path = corpus.folder / "small_256-first70-seed0.csv"
    path.write_bytes(path.read_bytes().replace(b"jpeg", b"jqeg", 1))
    assert corpus() == made
    assert intact(made, objects)


def test_no_room_is_one_line_before_anything_is_asked_for(
    corpus: Corpus, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "wallclock.corpus.abo.cost.OBJECT_BYTES", {"small_256": 10**15, "original": 1}
    )
    with pytest.raises(
        UserError, match=r"40 images of small_256 need 44,000,000\.00 GB in .* free; free some"
    ):
        corpus()
    assert not [path for path in proxy.counts if "/small/" in path]


def test_a_shorter_list_leaves_the_longer_one_beside_the_data(corpus: Corpus) -> None:
    made = corpus(n=25)
    (made.root / made.items[2].path).unlink()
    assert corpus(n=5) == made.first(5)
    about = json.loads(
        (corpus.folder / "small_256-first70-seed0.list.json").read_text(encoding="utf-8")
    )
    listed = (
        (corpus.folder / "small_256-first70-seed0.list.csv")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    assert about["n_images"] == 25
    assert listed == ["image_id,path", *(f"{item.id},{item.path}" for item in made.items)]
    said = {n: prepare.remarks(corpus.spec(), "small_256", n, corpus.cache)[0] for n in (5, 25)}
    assert said[25].startswith(
        f"  list small_256-25: {about['digest']}, of {N} images in the first 70 prefixes"
    )
    assert said[5].startswith("  list small_256-5: ")
    assert about["digest"] not in said[5]
