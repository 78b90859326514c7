"""Tar shards and LMDB: the same images, the same bytes each time."""

import os
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import pytest

from harness.corpora import readers
from harness.corpora.abo import pack
from harness.corpora.manifest import Manifest
from tests.harness.corpora.abo.conftest import Corpus, N
from tests.harness.corpora.abo.faulty_store import FaultyStore
from wallclock.errors import ImageError, UserError
from wallclock.files import sha256_bytes

both_layouts = pytest.mark.parametrize("layout", ["tar", "lmdb"])


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "_SHARD_ROWS", 16)


def files_of(manifest: Manifest) -> dict[str, bytes]:
    paths = [path for path in manifest.root.iterdir() if path.name != "lock.mdb"]
    return {path.name: path.read_bytes() for path in paths}


@both_layouts
def test_same_bytes_under_the_same_digest(corpus: Corpus, tmp_path: Path, layout: str) -> None:
    plain, packed = corpus(), corpus.packed(layout)
    assert packed.digest() == plain.digest()
    assert [item.id for item in packed.items] == [item.id for item in plain.items]
    reader = readers.make(packed)
    reader.prefetch(packed.items)
    for item in packed.items:
        assert sha256_bytes(reader(item)) == item.sha256
    assert (readers.storage_of(packed), reader.layout) == (layout, layout)
    readers.release(packed.root)
    again = Corpus(tmp_path / "again", corpus.settings["endpoint"]).packed(layout)
    assert files_of(packed) == files_of(again)


@both_layouts
def test_packed_again_only_for_more(corpus: Corpus, layout: str) -> None:
    packed = corpus.packed(layout, n=20)
    built = packed.root.stat().st_mtime_ns
    assert corpus.packed(layout, n=20) == packed
    assert corpus.packed(layout, n=7) == packed, "it holds more than what is asked for"
    assert packed.root.stat().st_mtime_ns == built
    assert corpus.packed(layout, n=N).head(20).digest() == packed.digest()
    assert packed.root.stat().st_mtime_ns > built


def test_shard_is_a_standard_tar(corpus: Corpus) -> None:
    plain, packed = corpus(), corpus.packed("tar")
    names = sorted(path.name for path in packed.root.glob("*.tar"))
    assert names == ["00000.tar", "00001.tar", "00002.tar"]
    members: dict[str, bytes] = {}
    for name in names:
        with tarfile.open(packed.root / name) as shard:
            members |= {member.name: shard.extractfile(member).read() for member in shard}  # type: ignore[union-attr]
    assert members == {item.path: (plain.root / item.path).read_bytes() for item in plain.items}


def test_invalid_images_are_not_packed(corpus: Corpus, store: FaultyStore, tmp_path: Path) -> None:
    refused = corpus(n=1).items[0].path
    store.decide = lambda path, count: "404" if path.endswith(refused) else ""
    packed = Corpus(tmp_path / "again", store.endpoint).packed("tar", n=5)
    assert [item.failed_reason for item in packed.items] == ["404 NoSuchKey", "", "", "", ""]
    assert len(packed.valid) == 4


@both_layouts
def test_damaged_pack_is_rebuilt(corpus: Corpus, layout: str) -> None:
    packed = corpus.packed(layout)
    before = files_of(packed)
    largest = max(packed.root.iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-4096])
    assert files_of(corpus.packed(layout)) == before
    # Bytes changed in place show only when every image is read.
    data = bytearray(largest.read_bytes())
    data[data.index(b"\xff\xd8\xff", len(data) // 2) + 200] ^= 1
    largest.write_bytes(data)
    assert files_of(corpus.packed(layout)) != before
    assert files_of(corpus.packed(layout, verify=True)) == before


@both_layouts
def test_wrong_location_is_a_read_failure(corpus: Corpus, layout: str) -> None:
    packed = corpus.packed(layout)
    reader, item = readers.make(packed), packed.items[0]
    for path in ("00000.tar@99999999", "00009.tar@512", "nonsense", "99999999", "x" * 600):
        with pytest.raises(ImageError) as caught:
            reader(replace(item, path=path))
        assert caught.value.stage == "read"
    with pytest.raises(ImageError, match="the pack was changed"):
        reader(replace(item, bytes=10**6))
    readers.release(packed.root)


def test_changed_file_is_not_packed(corpus: Corpus) -> None:
    plain = corpus()
    path = plain.root / plain.items[3].path
    mtime_ns = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes()[:-3] + b"\0\0\0")
    os.utime(path, ns=(mtime_ns, mtime_ns))
    line = r"is not what was fetched; run again with corpus\.verify=true"
    with pytest.raises(UserError, match=line):
        corpus.packed("tar")
    assert corpus(verify=True) == plain, "it is fetched again"
    assert len(corpus.packed("tar").valid) == N


def test_full_disk_leaves_no_partial_pack(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, open_database = corpus(), lmdb.open
    huge = replace(plain, items=tuple(replace(item, bytes=10**15) for item in plain.items))
    with pytest.raises(UserError, match=r"small_256 as tar: 40,000,000\.00 GB are needed"):
        pack.ensure(huge, "tar", corpus.folder / "huge.csv", False, lambda *_: None)

    def small(path: str, map_size: int, **options: Any) -> lmdb.Environment:
        return open_database(path, map_size=20_000, **options)

    monkeypatch.setattr(lmdb, "open", small)
    with pytest.raises(UserError, match=r"MDB_MAP_FULL.*; free some space and run the same"):
        corpus.packed("lmdb")
    assert not [path for path in corpus.pack_path("lmdb").parent.glob(".*") if path.is_dir()]
    monkeypatch.undo()
    assert len(corpus.packed("lmdb").valid) == len(plain.valid)


@pytest.mark.parametrize(("layout", "n_files"), [("files", N), ("tar", 3), ("lmdb", 1)])
def test_files_can_be_evicted_and_warmed(corpus: Corpus, layout: str, n_files: int) -> None:
    packed = corpus() if layout == "files" else corpus.packed(layout)
    files = readers.stored_files(packed)
    assert len(files) == n_files
    assert all(path.is_file() for path in files)
    reader = readers.make(packed)
    first = reader(packed.items[0])
    readers.release(packed.root)
    readers.evict(packed.root, files)
    readers.warm(files)
    assert reader(packed.items[0]) == first, "a reader reopens its database"
    readers.release(packed.root)


def test_database_is_shared_in_a_process_and_reopened_after_fork(corpus: Corpus) -> None:
    packed = corpus.packed("lmdb")
    reader, other = readers.make(packed), readers.make(packed)
    item = packed.items[1]
    assert reader(item) == other(item)
    child = os.fork()
    if child == 0:
        os._exit(0 if sha256_bytes(reader(item)) == item.sha256 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pickle.loads(pickle.dumps(packed)) == packed
    readers.release(packed.root)


@pytest.mark.parametrize(
    ("marker", "line"),
    [("{", "cannot be read; delete"), ('{"layout": "zip"}', "no storage is called 'zip'")],
)
def test_unknown_marker_is_one_line(tmp_path: Path, marker: str, line: str) -> None:
    (tmp_path / readers.MARKER).write_text(marker, encoding="utf-8")
    with pytest.raises(UserError, match=line):
        readers.make(Manifest("abo", "original", tmp_path, ()))
