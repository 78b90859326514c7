"""Tars of thumbnails as a source: only beside their dataset, and never with a wrong offset."""

import gzip
import io
import json
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import making
from tests.wallclock.job.conftest import DAMAGED, QUICK, N, content
from wallclock.errors import UserError
from wallclock.job import embed
from wallclock.job.listing import list_items
from wallclock.job.tars import Member, members
from wallclock.job.thumbnails import header

Run = Callable[..., Any]
BLOCK = tarfile.BLOCKSIZE


def packed(*files: tuple[str, bytes], size: int | None = None) -> bytes:
    """A tar as a job writes it; `size`: what the header of its first file says."""
    blocks = b""
    for name, data in files:
        said = len(data) if size is None or blocks else size
        blocks += header(name, said) + data + bytes(-len(data) % BLOCK)
    return blocks + bytes(2 * BLOCK)


def pair(key: int) -> tuple[tuple[str, bytes], tuple[str, bytes]]:
    about = {"id": f"{key}.jpg", "sha256": f"{key:064}"}
    image = making.jpeg(64, 48, key)
    return (f"{key:09}.jpg", image), (f"{key:09}.json", json.dumps(about).encode())


GOOD = packed(*pair(0), *pair(1))


def linked() -> bytes:
    """A tar with a symbolic link among its images."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, data in pair(0):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("000000001.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return file.getvalue()


BAD = {
    "empty": b"",
    "cut": GOOD[: len(GOOD) // 2],
    "without its end": GOOD[: -2 * BLOCK],
    "gzip": gzip.compress(GOOD),
    "wrong checksum": GOOD[:150] + bytes([GOOD[150] ^ 1]) + GOOD[151:],
    "wrong checksum later": GOOD.replace(header("000000001.jpg", len(pair(1)[0][1])), b"x" * BLOCK),
    "too large": packed(*pair(0), size=1 << 20),
    "too small": packed(*pair(0), size=9),
    "twice": packed(*pair(0), *pair(0)),
    "link": linked(),
    "image alone": packed(pair(0)[0]),
    "two images": packed(pair(0)[0], pair(1)[0], pair(0)[1], pair(1)[1]),
    "no JSON": packed(pair(0)[0], ("000000000.json", b"[" * 70_000)),
    "no id": packed(pair(0)[0], ("000000000.json", b'{"id": 7, "sha256": "x"}')),
    "text": b"not a tar\n" * 200,
}


@pytest.mark.parametrize("how", BAD)
def test_a_damaged_tar_is_one_line(how: str, run: Run, tmp_path: Path) -> None:
    run(keep="thumbnails")
    folder = tmp_path / "out" / "_thumbnails"
    (folder / "part-00001.tar").write_bytes(BAD[how])
    with pytest.raises(UserError, match=r"part-00001\.tar is damaged: ") as caught:
        list_items(str(folder))
    assert "\n" not in str(caught.value)


def test_other_padding_is_read(tmp_path: Path) -> None:
    """tarfile fills a tar with zeros up to 10,240 bytes."""
    path = tmp_path / "part-00000.tar"
    path.write_bytes(GOOD)
    rows = [*members([path])]
    assert [(name, digest) for name, _, digest in rows] == [
        ("0.jpg", f"{0:064}"),
        ("1.jpg", f"{1:064}"),
    ]
    path.write_bytes(GOOD + bytes(-len(GOOD) % tarfile.RECORDSIZE))
    assert [*members([path])] == rows
    path.write_bytes(bytes(2 * BLOCK))
    assert [*members([path])] == []


def test_a_changed_bit_moves_no_offset(tmp_path: Path) -> None:
    path = tmp_path / "part-00000.tar"
    path.write_bytes(GOOD)
    rows, rng = [*members([path])], random.Random(0)
    places = [place for _, place, _ in rows]
    refused = 0
    for _ in range(500):
        changed = bytearray(GOOD)
        bit = rng.randrange(8 * len(GOOD))
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            assert [place for _, place, _ in members([path])] == places
        except UserError:
            refused += 1
    assert refused > 100


def test_a_tar_in_a_folder_of_images_is_another_file(tmp_path: Path) -> None:
    """Also where a file beside that folder is called as a dataset's description."""
    (tmp_path / "dataset.json").write_text('{"name": "mine"}')
    for name in ("images", "thumbnails", "_thumbnails"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.jpg").write_bytes(making.jpeg(64, 48))
        (folder / "part-1.tar").write_bytes(GOOD)
        items = list_items(str(folder))
        assert (items.ids.to_pylist(), items.others) == (["a.jpg"], ("part-1.tar",))


def test_thumbnails_beside_their_dataset(run: Run, tmp_path: Path) -> None:
    run(keep="thumbnails")
    folder = tmp_path / "out" / "_thumbnails"
    assert len(list_items(str(folder))) == N - DAMAGED
    embed(folder, tmp_path / "next", **QUICK)
    assert content(tmp_path / "next").rows.keys() == content(tmp_path / "out").rows.keys()
    (tmp_path / "out" / "_dataset.json").write_text("[" * 70_000)
    with pytest.raises(UserError, match=r"_dataset.json cannot be read"):
        list_items(str(folder))


def test_a_member_is_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "part-00000.tar"
    path.write_bytes(GOOD)
    places = [place.decode() for _, place, _ in members([path])]
    assert [Member(f"{tmp_path}/{place}").read() for place in places] == [
        pair(0)[0][1],
        pair(1)[0][1],
    ]
