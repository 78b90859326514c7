"""Tars of any form, over the limit and damaged; items, folders and tars behind URLs."""

import bz2
import gzip
import io
import lzma
import posixpath
import re
import tarfile
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import wallclock
from tests import making
from tests.harness.corpora.abo.conftest import fill
from tests.wallclock.loader.test_records import GOOD, OTHER, load, write_tar
from wallclock import Workers, open_images
from wallclock.errors import UserError
from wallclock.fetch.urls import is_url
from wallclock.loader.tars import TarMembers
from wallclock.recipe import Limits


def test_a_member_over_the_limit_is_passed_over(tmp_path: Path) -> None:
    """Neither it nor a header is held; sparse files may say that they are of any size."""
    zeros, sparse = bytes(1 << 25), {"GNU.sparse.map": "0,1", "GNU.sparse.size": "9" * 12}
    members = [("a.jpg", GOOD), ("b.jpg", zeros), ("b.cls", b"1"), ("c.jpg", sparse)]
    members += [("d.jpg", (tarfile.GNUTYPE_SPARSE, "")), ("e.jpg", OTHER), ("e.npy", zeros)]
    tar = write_tar(tmp_path / "t.tar.gz", [*members, ("f.jpg", OTHER)], "w:gz")
    header = [("a.jpg", GOOD), ("b.jpg", {"comment": "a" * (1 << 25)}), ("c.jpg", GOOD)]
    long = write_tar(tmp_path / "long.tar.gz", header, "w:gz")
    workers = Workers(limits=Limits(max_bytes=1 << 20))
    loaded = load([GOOD])  # what is imported then is not counted
    tracemalloc.start()
    try:
        loaded = load(tar, workers=workers)
        with pytest.raises(UserError, match=r"long\.tar\.gz: a header of 33.* behind a\.jpg; is"):
            load(long, workers=workers)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
    assert loaded.ids == ["a", "f"]
    over, sparse_file = "33,554,432 bytes, over the limit of 1,048,576", "a sparse file; write the"
    reasons = {"b.jpg": over, "c.jpg": sparse_file, "d.jpg": sparse_file, "e.npy": over}
    for name, reason in reasons.items():
        assert loaded.failures[name[0]].startswith(f"{tar}/{name}: {reason}")


def tars() -> list[bytes]:
    """Twelve images in each form of a tar, compressed in each way and in two parts."""
    packed = []
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w", format=form) as tar:
            for at in range(12):
                info = tarfile.TarInfo(f"{'d' * (95 * (at % 3) + 1)}/{at}.jpg")
                info.size, info.mtime = len(GOOD), at + at % 2 / 2
                tar.addfile(info, io.BytesIO(GOOD))
        data = file.getvalue()
        packed += [data, gzip.compress(data), bz2.compress(data)]
        packed.append(gzip.compress(data[:7000]) + gzip.compress(data[7000:]))
    return packed


TARS = tars()


def test_tars_of_any_form(tmp_path: Path) -> None:
    for whole in TARS:
        (tmp_path / "t.tar").write_bytes(whole)
        assert [name.rpartition("/")[2] for name in load(tmp_path / "t.tar").ids] == [
            f"{at}" for at in range(12)
        ]
    (tmp_path / "t.tar").write_bytes(lzma.compress(TARS[0]))
    with pytest.raises(UserError, match=r"t\.tar: it is packed by xz, .*: use gzip"):
        load(tmp_path / "t.tar")


@given(
    st.sampled_from(TARS),
    st.sampled_from(["cut", "flip", "zero", "drop", "junk"]),
    st.floats(0, 1, exclude_max=True),
    st.integers(1, 2000),
)
@settings(max_examples=150)
@example(TARS[0], "zero", 0.5, 1)
def test_a_damaged_tar_loses_no_image_without_a_word(
    whole: bytes, damage: str, place: float, n: int
) -> None:
    at = int(place * len(whole))
    new = {"cut": b"", "flip": bytes([whole[at] ^ (n % 255 + 1)]), "zero": bytes(n), "drop": b""}
    end = {"cut": len(whole), "flip": at + 1}.get(damage, at + n)
    data = whole[:at] + new[damage] + whole[end:] if damage in new else whole + b"junk" * n
    with TemporaryDirectory() as folder:
        tar = Path(folder, "t.tar")
        tar.write_bytes(data)
        error, found = "", list[str]()
        try:
            loaded = load(tar)
            found += [*loaded.ids, *loaded.failures, *loaded.skipped]
        except UserError as raised:
            error = str(raised)
    assert len(found) == 12 or re.fullmatch(rf"{tar}: .*; is it a whole tar\?", error)


KINDS = [tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.DIRTYPE, b"?"]


@given(
    name=st.text("aé/.", min_size=1, max_size=90),
    size=st.sampled_from([0, 3, 511, 8**11 - 1, 8**11]),
    kind=st.sampled_from(KINDS),
    checksum=st.sampled_from(["%06o\0 ", "%07o\0", " %o ", "%o8"]),
    prefix=st.binary(max_size=3),
    change=st.tuples(st.integers(0, 511), st.integers(0, 255)) | st.none(),
)
def test_a_header_is_as_tarfile_reads_it(
    name: str, size: int, kind: bytes, checksum: str, prefix: bytes, change: Any
) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT)[-512:])
    header[345 : 345 + len(prefix)], header[148:156] = prefix, b" " * 8
    text = (checksum % sum(header)).encode()
    header[148 : 148 + len(text)] = text
    if change:
        header[change[0]] = change[1]
    members = iter(TarMembers(io.BytesIO(header + bytes(512)), 512, False))
    try:
        expected = tarfile.TarInfo.frombuf(bytes(header), "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        with pytest.raises(tarfile.TarError):
            next(members)
        return
    if expected.type in KINDS and (expected.isdir() or 0 <= expected.size <= 512):
        content = None if expected.isdir() else bytes(expected.size)
        assert next(members) == (posixpath.normpath(expected.name), content)


def test_members_are_let_go(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    names = [f"{at:090}" for at in range(3000)]
    with tarfile.open(path, "w") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"data"))
    with path.open("rb") as file:
        members = iter(TarMembers(file, 1 << 20, True))
        tracemalloc.start()
        try:
            for name in names:
                assert next(members) == (name, b"data")
            assert tracemalloc.get_traced_memory()[1] < 1 << 17
        finally:
            tracemalloc.stop()
        assert list(members) == []


FILES = [making.jpeg(48, 40, seed) for seed in range(5)]
PLAIN = [wallclock.decode(data, 16) for data in FILES]


LOCAL = ["/etc/hosts", "FILE:///etc/hosts", "etc/hosts", "gs://b/a.jpg"]


def labelled(first: int) -> bytes:
    """A tar of the files, with their numbers as classes."""
    members = list[tuple[str, bytes]]()
    for number, data in enumerate(FILES, first):
        members += [(f"{number:04}.cls", b"%d" % number), (f"{number:04}.jpg", data)]
    return making.tar(members)


@pytest.fixture
def bucket(s3: str) -> str:
    objects = {f"photos/{number}.jpg": data for number, data in enumerate(FILES)}
    objects |= {f"train-{shard}.tar": labelled(5 * shard) for shard in range(3)}
    names = io.BytesIO()
    pq.write_table(pa.table({"url": [*LOCAL, "s3://bucket/photos/0.jpg"]}), names)
    objects |= {"names.parquet": names.getvalue(), "cut.tar": labelled(0)[:3000]}
    fill(s3, "bucket", objects)
    return "s3://bucket"


def test_what_is_a_url() -> None:
    for url in ("gs://b/a.jpg", "file:///a.jpg", "s3://b/k", "HTTP://a"):
        assert is_url(url), url
    for path in ("a.jpg", "/a/b.jpg", "C:/a.jpg", "a b://c", "://a", "/a://b", "./s3://b"):
        assert not is_url(path), path


def test_files_by_their_urls(tmp_path: Path) -> None:
    (tmp_path / "a b.jpg").write_bytes(FILES[0])
    urls = [f"file://{tmp_path}/a%20b.jpg", f"FILE://localhost{tmp_path}/a%20b.jpg"]
    with open_images([*urls, f"file://{tmp_path}", "gs://b/a.jpg"], 16) as batches:
        (batch,) = batches
    assert batch.ids == urls
    np.testing.assert_array_equal(batch.images, [PLAIN[0]] * 2)
    reasons = [failure["reason"] for failure in batch.failures]
    assert reasons == ["not a regular file", "give a URL of http, https, s3 or file"]


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ("gs://bucket/photos", "cannot be listed; give s3://"),
        ("http://127.0.0.1:1/photos", "cannot be listed; give s3://"),
        ("gs://bucket/a.tar", "give a URL of http, https, s3 or file"),
        ("gs://bucket/a.parquet", "give a URL of http, https, s3 or file"),
    ],
)
def test_other_urls(items: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason), open_images(items, 16) as batches:
        next(batches)


def test_a_table_from_elsewhere_names_no_local_file(bucket: str) -> None:
    with open_images(f"{bucket}/names.parquet", 16) as batches:
        (batch,) = batches
    assert batch.ids == ["s3://bucket/photos/0.jpg"]
    assert [failure["id"] for failure in batch.failures] == LOCAL
    assert all("a table from elsewhere names URLs" in row["reason"] for row in batch.failures)


def test_tars_of_a_bucket(bucket: str) -> None:
    name = f"{bucket}/train-{{0..2}}.tar"
    seen = []
    for rank in range(3):
        with open_images(name, 16, 3, shard=(rank, 3)) as batches:
            seen.append([label for batch in batches for label in batch.labels])
    assert seen == [list(range(5 * rank, 5 * rank + 5)) for rank in range(3)]
    with open_images(f"{bucket}/train-1.tar", 16) as batches:
        np.testing.assert_array_equal(next(batches).images, PLAIN)
    for damaged, words in (("cut", "is it a whole tar"), ("none", "NoSuchKey|404")):
        with pytest.raises(UserError, match=rf"{damaged}\.tar: .*({words})"):
            list(open_images(f"{bucket}/{damaged}.tar", 16))


def test_a_bucket_and_its_items(bucket: str) -> None:
    with open_images(f"{bucket}/photos", 16) as batches:
        (batch,) = batches
    assert batch.ids == [f"{bucket}/photos/{number}.jpg" for number in range(5)]
    np.testing.assert_array_equal(batch.images, PLAIN)
    with open_images([(batch.ids[3], 7), f"{bucket}/photos/none.jpg"], 16) as batches:
        (batch,) = batches
    assert batch.labels == [7]
    np.testing.assert_array_equal(batch.images, PLAIN[3:4])
    assert re.search("404|NoSuchKey", batch.failures[0]["reason"])
