"""Members of a tar: read by its headers, as tarfile reads them, and none of them held."""

import io
import posixpath
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallclock.loader.tars import TarMembers

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
    members = iter(TarMembers(io.BytesIO(header + bytes(512)), 512, None))
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
    """A link is found all the same: the headers before it are read again."""
    path = tmp_path / "t.tar"
    names = [f"{at:090}" for at in range(3000)]
    with tarfile.open(path, "w") as tar:
        for name in [*names, "a"]:
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"data"))
        for name, kind, target in (("b", tarfile.SYMTYPE, "a"), ("c", tarfile.LNKTYPE, "b")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, target
            tar.addfile(link)
        tar.addfile(member, io.BytesIO(b"last"))
    with path.open("rb") as file:
        members = iter(TarMembers(file, 1 << 20, file.fileno()))
        tracemalloc.start()
        try:
            for name in names:
                assert next(members) == (name, b"data")
            assert tracemalloc.get_traced_memory()[1] < 1 << 17
        finally:
            tracemalloc.stop()
        rest = [content for _, content in members]
    assert rest == [b"data", b"data", b"data", b"last"]
