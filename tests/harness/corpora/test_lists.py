"""The pinned list of a corpus, and packed forms of it."""

import os
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from harness.corpora import manifest as manifests
from harness.corpora import pack, readers, synthetic
from harness.corpora.manifest import Item, Manifest
from harness.digests import sha256_bytes
from harness.spec import CorpusSpec
from wallclock.errors import ImageError, UserError

# --- manifest -------------------------------------------------------------------------------------


ITEM = Item("a.jpg", "a.jpg", 10, 4, 3, "0" * 64, "jpeg", "baseline", 3, 123)
FAILED = Item("b.jpg", "b.jpg", 7, 0, 0, "1" * 64, "", "", 0, 5, "decode", 'damaged, "badly"')
MANIFEST = Manifest("folder", "original", Path("/images"), (ITEM, FAILED))

#: File names as Linux allows them: any bytes but NUL and the slash, stray ones as surrogates.
NAMES = st.binary(min_size=1, max_size=40).map(
    lambda raw: raw.replace(b"\0", b"0").replace(b"/", b"_").decode("utf-8", "surrogateescape")
)


@given(st.lists(NAMES, min_size=1, max_size=6), NAMES, st.text(max_size=30), st.text(max_size=30))
def test_any_text_reads_back(names: list[str], folder: str, identity: str, reason: str) -> None:
    items = [replace(ITEM, path=name) for name in names]
    failed = replace(FAILED, id=identity, failed_reason=reason)
    manifest = replace(MANIFEST, root=Path("/") / folder, items=(*items, failed))
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "manifest.csv"
        manifests.save(manifest, path)
        assert manifests.load(path) == manifest


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "manifest.csv"
    manifests.save(MANIFEST, path)
    return path


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"jpeg", b"jqeg"), (b",4,3,", b",4,2,"), (b"b.jpg", b"c.jpg"), (b"123", b"")],
)
def test_edited_list_is_refused(saved: Path, before: bytes, after: bytes) -> None:
    data = saved.read_bytes()
    assert before in data
    saved.write_bytes(data.replace(before, after, 1))
    with pytest.raises(UserError, match="was edited"):
        manifests.load(saved)
    assert manifests.load_or_none(saved) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 0}', "\ud800"])
def test_broken_companion_is_refused(saved: Path, text: str) -> None:
    saved.with_suffix(".json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(UserError, match="manifest"):
        manifests.load(saved)
    assert manifests.load_or_none(saved) is None
    saved.unlink()
    with pytest.raises(UserError, match="no readable manifest"):
        manifests.load(saved)


def test_digest_covers_ids_contents_and_failures_only() -> None:
    def digest(**changes: Any) -> str:
        return replace(MANIFEST, items=(replace(ITEM, **changes), FAILED)).digest()

    assert replace(MANIFEST, root=Path("/elsewhere")).digest() == MANIFEST.digest()
    assert digest(mtime_ns=9, path="x") == MANIFEST.digest()
    assert replace(MANIFEST, items=(FAILED, ITEM)).digest() != MANIFEST.digest()
    changed = {digest(id="x"), digest(sha256="2" * 64), digest(failed_stage="read")}
    assert len(changed - {MANIFEST.digest()}) == 3


# --- pack -----------------------------------------------------------------------------------------


N = 10


@pytest.fixture
def files(tmp_path: Path) -> Manifest:
    """Small images; the second is damaged."""
    spec = CorpusSpec("synthetic")
    prepared = synthetic.prepare(spec, "small_256", N, tmp_path / "corpus", lambda *_: None)
    manifest = manifests.load(Path(prepared.manifest))
    damaged = manifest.items[1].with_failure(ImageError("decode", "damaged"))
    return replace(manifest, items=(manifest.items[0], damaged, *manifest.items[2:]))


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "_SHARD_ROWS", 4)


def packed(files: Manifest, form: str, folder: Path) -> Manifest:
    folder.mkdir(exist_ok=True)
    return pack.ensure(files, form, folder / f"x.{form}.csv", lambda *_: None)


def test_shards_are_standard_tars_of_the_same_images(files: Manifest, tmp_path: Path) -> None:
    table = packed(files, "tar", tmp_path / "once")
    assert table.digest() == files.digest()
    reader = readers.make(table)
    assert [sha256_bytes(reader(item)) for item in table.valid] == [i.sha256 for i in files.valid]
    shards = readers.stored_files(table)
    assert [path.name for path in shards] == ["00000.tar", "00001.tar", "00002.tar"]
    members: dict[str, bytes] = {}
    for path in shards:
        with tarfile.open(path) as shard:
            members |= {member.name: shard.extractfile(member).read() for member in shard}  # type: ignore[union-attr]
    assert members == {item.path: (files.root / item.path).read_bytes() for item in files.valid}
    again = readers.stored_files(packed(files, "tar", tmp_path / "again"))
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in shards]


@pytest.mark.parametrize("form", ["pixels", "pixels_256"])
def test_pixels_are_those_of_pillow(files: Manifest, tmp_path: Path, form: str) -> None:
    table = packed(files, form, tmp_path)
    read = readers.make(table)
    for item, file in zip(table.valid, files.valid, strict=True):
        image = Image.open(files.root / file.path).convert("RGB")
        if form == "pixels_256":
            image.thumbnail((256, 256), Image.Resampling.BILINEAR, reducing_gap=None)
        pixels = np.frombuffer(read(item), np.uint8).reshape(item.height, item.width, 3)
        assert np.array_equal(pixels, np.asarray(image))
        assert item.format == "pixels"


def test_wrong_location_is_a_read_failure(files: Manifest, tmp_path: Path) -> None:
    table = packed(files, "tar", tmp_path)
    reader, item = readers.make(table), table.items[0]
    for path in ("00000.tar@99999999", "00009.tar@512", "nonsense", "99999999", "x" * 600):
        with pytest.raises(ImageError) as caught:
            reader(replace(item, path=path))
        assert caught.value.stage == "read"
    with pytest.raises(ImageError, match="the pack was changed"):
        reader(replace(item, bytes=10**6))


def test_what_cannot_be_packed_is_one_line_and_leaves_nothing(
    files: Manifest, tmp_path: Path
) -> None:
    huge = replace(files, items=tuple(replace(item, bytes=10**15) for item in files.items))
    with pytest.raises(UserError, match=r"small_256 as tar: 9,000,000\.00 GB are needed"):
        packed(huge, "tar", tmp_path / "packs")
    path = files.root / files.items[3].path
    path.write_bytes(path.read_bytes()[:-3] + b"\0\0\0")
    with pytest.raises(UserError, match=r"is not what was listed"):
        packed(files, "tar", tmp_path / "packs")
    assert not list((tmp_path / "packs").iterdir())


GONE, CHANGED = "No such file or directory", "changed since it was listed"


def test_bytes_or_the_reason(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    files = {"a": b"\0data", "empty": b"", "short": b"four", "long": b"longer than five"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    reader = readers.make(Manifest("folder", "original", tmp_path, ()))
    assert reader(Item("a", "a", 5)) == files["a"]
    reasons = {"gone": GONE, "link": GONE, ".": "Is a directory"}
    for name, reason in (reasons | dict.fromkeys(["empty", "short", "long"], CHANGED)).items():
        with pytest.raises(ImageError, match=f"^read: .*{reason}"):
            reader(Item(name, name, 5))


def test_a_cold_file_leaves_the_page_cache_after_each_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[bytes] = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda fd, *how: dropped.append(os.pread(fd, 9, 0) + bytes(how))
    )
    (tmp_path / "a").write_bytes(b"data")
    for cold, expected in ((False, []), (True, [b"data" + bytes((0, 0, 4))])):
        manifest = Manifest("folder", "original", tmp_path, (), cold)
        assert readers.make(manifest)(Item("a", "a", 4)) == b"data"
        assert dropped == expected
