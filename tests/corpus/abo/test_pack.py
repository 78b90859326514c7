"""Tar shards and LMDB: the same images, the same bytes each time, and `read` finds them."""

from __future__ import annotations

import os
import pickle
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import pytest

from tests.corpus.abo.conftest import Corpus, N
from tests.corpus.abo.fault_proxy import FaultProxy
from wallclock.corpus import page_cache, readers
from wallclock.corpus.abo import pack
from wallclock.corpus.manifest import Manifest
from wallclock.errors import ImageError, UserError
from wallclock.files import sha256_bytes
from wallclock.spec import Slice

LAYOUTS = ("tar", "lmdb")


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "_SHARD_ROWS", 16)


def files_of(found: Manifest) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in found.root.iterdir() if path.name != "lock.mdb"
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_reads_the_same_bytes_under_the_same_digest(corpus: Corpus, layout: str) -> None:
    plain, packed = corpus(), corpus(layout=layout)
    assert packed.digest() == plain.digest()
    assert [item.id for item in packed.items] == [item.id for item in plain.items]
    reader = readers.make(packed.root)
    reader.expect(packed.items)
    for item in packed.items:
        assert sha256_bytes(reader(item)) == item.sha256
    assert readers.storage_of(packed.root) == layout
    readers.release(packed.root)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_cells_identity_knows_the_layout(corpus: Corpus, layout: str) -> None:
    made = corpus.slice(layout=layout)
    assert made.storage == layout
    assert made.label == f"abo ({layout})"
    assert corpus.slice().storage == "files"
    assert replace(made, storage="files", manifest="") == replace(corpus.slice(), manifest="")
    assert Slice("abo", "original", 1, "", "").label == "abo"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_list_makes_the_same_bytes(corpus: Corpus, tmp_path: Path, layout: str) -> None:
    one = corpus(layout=layout)
    other = Corpus(tmp_path / "other", corpus.settings["endpoint"])(layout=layout)
    assert files_of(one) == files_of(other)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_packed_once_and_again_when_more_is_asked_for(
    corpus: Corpus, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = corpus(n=20, layout=layout)
    made: list[int] = []
    for name in ("_write_tar", "_write_lmdb"):
        monkeypatch.setattr(pack, name, _counted(getattr(pack, name), made))
    assert corpus(n=20, layout=layout) == first
    assert corpus(n=4, layout=layout) == first.first(4)
    assert not made
    assert corpus(n=N, layout=layout).first(20).digest() == first.digest()
    assert made == [1]


def _counted(
    real: Callable[..., dict[str, str]], calls: list[int]
) -> Callable[..., dict[str, str]]:
    def call(*arguments: Any) -> dict[str, str]:
        calls.append(1)
        return real(*arguments)

    return call


def test_a_shard_is_a_tar_that_any_tool_reads(corpus: Corpus) -> None:
    plain, packed = corpus(), corpus(layout="tar")
    names = sorted(path.name for path in packed.root.glob("*.tar"))
    assert names == ["00000.tar", "00001.tar", "00002.tar"]
    members: dict[str, bytes] = {}
    for name in names:
        with tarfile.open(packed.root / name) as shard:
            members |= {member.name: shard.extractfile(member).read() for member in shard}  # type: ignore[union-attr]
    assert members == {item.path: (plain.root / item.path).read_bytes() for item in plain.items}


def test_what_cannot_be_used_is_listed_and_not_packed(corpus: Corpus, proxy: FaultProxy) -> None:
    refused = corpus(n=1).items[0].path
    proxy.decide = lambda path, count: "404" if path.endswith(refused) else ""
    corpus.cache = corpus.cache.parent / "again"
    packed = corpus(n=5, layout="tar")
    assert [item.failed_reason for item in packed.items] == ["404 NoSuchKey", "", "", "", ""]
    assert len(packed.valid) == 4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_damaged_pack_is_found_and_made_again(corpus: Corpus, layout: str) -> None:
    packed = corpus(layout=layout)
    before = files_of(packed)
    largest = max(packed.root.iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-4096])
    assert files_of(corpus(layout=layout)) == before
    # Bytes changed in place show only when every image is read.
    data = bytearray(largest.read_bytes())
    middle = data.index(b"\xff\xd8\xff", len(data) // 2) + 200
    data[middle] ^= 1
    largest.write_bytes(data)
    assert files_of(corpus(layout=layout)) != before
    assert files_of(corpus(layout=layout, verify=True)) == before


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_not_where_the_row_says_is_a_failure_of_read(corpus: Corpus, layout: str) -> None:
    packed = corpus(layout=layout)
    reader = readers.make(packed.root)
    item = packed.items[0]
    for path in ("00000.tar@99999999", "00009.tar@512", "nonsense", "99999999", "x" * 600):
        with pytest.raises(ImageError) as caught:
            reader(replace(item, path=path))
        assert caught.value.stage == "read"
    with pytest.raises(ImageError, match="the pack was changed"):
        reader(replace(item, bytes=10**6))
    readers.release(packed.root)


def test_a_file_that_changed_is_not_packed(corpus: Corpus) -> None:
    plain = corpus()
    path = plain.root / plain.items[3].path
    about = path.stat()
    path.write_bytes(path.read_bytes()[:-3] + b"\0\0\0")
    os.utime(path, ns=(about.st_mtime_ns, about.st_mtime_ns))
    with pytest.raises(
        UserError, match=r"is not what was fetched; run again with corpus\.verify=true"
    ):
        corpus(layout="tar")
    assert len(corpus(layout="tar", verify=True).valid) == N


def test_no_room_for_a_pack_is_one_line(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = corpus()
    huge = replace(plain, items=tuple(replace(item, bytes=10**15) for item in plain.items))
    with pytest.raises(UserError, match=r"corpus\.layout=tar needs 40,000,000\.0 GB more"):
        pack.ensure(huge, "tar", corpus.folder / "huge.csv", False, lambda done, total, what: None)


def test_a_disk_that_fills_while_packing_is_one_line_and_leaves_nothing(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = corpus()
    open_database = lmdb.open
    monkeypatch.setattr(
        lmdb, "open", lambda path, map_size, **more: open_database(path, map_size=20_000, **more)
    )
    with pytest.raises(
        UserError, match=r"MDB_MAP_FULL.*; free some space and run the same command again"
    ):
        corpus(layout="lmdb")
    assert {path.name for path in corpus.folder.glob(".*") if path.is_dir()} == set()
    monkeypatch.undo()
    assert len(corpus(layout="lmdb").valid) == len(plain.valid)


@pytest.mark.parametrize("layout", ["files", *LAYOUTS])
def test_its_files_can_be_evicted_and_warmed(corpus: Corpus, layout: str) -> None:
    packed = corpus(layout=layout)
    files = readers.stored(packed.root, packed.items)
    assert len(files) == {"files": N, "tar": 3, "lmdb": 1}[layout]
    assert all(path.is_file() for path in files)
    reader = readers.make(packed.root)
    first = reader(packed.items[0])
    readers.release(packed.root)
    page_cache.evict(files)
    page_cache.warm(files)
    # A reader goes on after its database was let go.
    assert reader(packed.items[0]) == first
    readers.release(packed.root)


def test_one_database_may_be_read_twice_in_a_process_and_in_its_children(corpus: Corpus) -> None:
    packed = corpus(layout="lmdb")
    opened = [readers.make(packed.root), readers.make(packed.root)]
    item = packed.items[1]
    assert opened[0](item) == opened[1](item)
    child = os.fork()
    if child == 0:
        os._exit(0 if sha256_bytes(opened[0](item)) == item.sha256 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pickle.loads(pickle.dumps(packed)) == packed
    readers.release(packed.root)


def test_a_marker_that_says_something_else_is_one_line(tmp_path: Path) -> None:
    (tmp_path / readers.MARKER).write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="cannot be read; delete"):
        readers.make(tmp_path)
    (tmp_path / readers.MARKER).write_text('{"layout": "zip"}', encoding="utf-8")
    with pytest.raises(UserError, match="no storage is called 'zip'"):
        readers.make(tmp_path)
