"""Tars of any form, with members over the limit, and damaged ones."""

import bz2
import gzip
import io
import lzma
import re
import tarfile
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.wallclock.loader.test_records import GOOD, OTHER, load, write_tar
from wallclock import Workers
from wallclock.errors import UserError
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
