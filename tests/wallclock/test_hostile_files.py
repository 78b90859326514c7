"""Files that once stopped a run: each is one image's failure, or is decoded by all."""

import errno
import os
import struct
import zlib
from collections import Counter
from pathlib import Path

import pytest
import simplejpeg

from tests import making
from tests.mutants import KINDS, outcomes
from wallclock.check import read_header, validate
from wallclock.errors import ImageError, image_errors
from wallclock.loader.images import open_images
from wallclock.recipe import Limits

JPEG = making.jpeg(96, 64)


def odd_sampling() -> bytes:
    """A 4:4:1 JPEG: 4:1:1 with its sides exchanged, which has as many blocks an MCU."""
    data = bytearray(simplejpeg.encode_jpeg(making.picture(96, 64), colorsubsampling="411"))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", 96, 64)
    assert data[at + 6] == 0x41
    data[at + 6] = 0x14
    return bytes(data)


PIXELS = making.png_chunk(b"IDAT", zlib.compress(b"\0" + bytes(6)))
#: Pillow reads behind the end of the profile's name: IndexError.
BAD_ICCP = making.png(2, 1, PIXELS, making.png_chunk(b"iCCP", b"name\0"))
COMMENT = b"\xff\xfe\x00\x02"

REFUSED = {
    "icc": (BAD_ICCP, "IndexError"),
    "wide": (making.png(99_999_999, 1, PIXELS), "over the limit of 65,535 a side"),
    "tall": (making.png(1, 99_999_999, PIXELS), "over the limit of 65,535 a side"),
    "comments": (JPEG[:2] + COMMENT * 20_000 + JPEG[2:], "more JPEG segments"),
    "comments behind the scan": (JPEG[:-2] + COMMENT * 20_000 + JPEG[-2:], "more JPEG segments"),
    "fill bytes": (JPEG[:2] + b"\xff" * 200_000 + JPEG[2:], "junk between"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(name: str) -> None:
    data, reason = REFUSED[name]
    with pytest.raises(ImageError, match=f"^decode: .*{reason}") as caught:
        validate(data, Limits())
    assert " at 0x" not in caught.value.reason


def test_scans_are_limited_by_the_pixels_of_each() -> None:
    limits = Limits(max_work=3_000_000)
    with pytest.raises(ImageError, match=r"in \d\d scans: .* of work, over the limit of 0.003"):
        validate(making.scan_bomb(20, width=400, height=400), limits)
    validate(making.scan_bomb(1, width=400, height=400), limits)


def test_a_jpeg_of_odd_sampling_is_read_beside_what_is_refused() -> None:
    files = [JPEG, odd_sampling(), *(data for data, _ in REFUSED.values())]
    with open_images(files, 32) as batches:
        (batch,) = batches
    behind = str(2 + [*REFUSED].index("comments behind the scan"))  # the loader stops at the scan
    assert (batch.ids, len(batch.failures)) == (["0", "1", behind], len(REFUSED) - 1)
    assert not read_header(odd_sampling(), Limits()).plain_jpeg


def test_path_longer_than_the_system_allows(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(JPEG)
    base = os.open(tmp_path, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=base)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=base)
        os.close(base)
        base = deeper
    file = os.open("deep.jpg", os.O_CREAT | os.O_WRONLY, dir_fd=base)
    os.write(file, JPEG)
    os.close(file)
    os.close(base)
    with open_images(tmp_path, 8) as batches:
        (batch,) = batches
    assert batch.ids == ["a.jpg"]
    assert {row["stage"] for row in batch.failures} <= {"read"}


@pytest.mark.parametrize("error", [KeyError(6), MemoryError(), IndexError("x"), OSError("damaged")])
def test_whatever_a_library_raises_is_the_images(error: Exception) -> None:
    def library(data: bytes) -> None:
        raise error

    with pytest.raises(ImageError, match=r"^decode: lib: ") as caught:
        image_errors("decode", "lib", library)(b"")
    assert caught.value.__cause__ is error


def test_what_concerns_the_machine_ends_the_run() -> None:
    def library(data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        image_errors("decode", "lib", library)(b"")


N = 2000
#: Kinds that are read in a few milliseconds.
LIGHT = {"list.csv", "list.jsonl", "list.json", "list.txt"}
LIGHT |= {"table.parquet", "images.tar", "images.tar.gz"}


def check(lines: list[str]) -> Counter[tuple[str, str]]:
    assert [line for line in lines if line.split()[2] == "wrong:"] == []
    return Counter((line.split()[0], line.split()[2]) for line in lines)


def test_some_of_each_kind() -> None:
    jobs = [(kind, N + seed) for kind in KINDS for seed in range(10 if kind in LIGHT else 1)]
    found = check([*outcomes(jobs)])
    assert {kind for kind, outcome in found if outcome == "refused:"} == {*KINDS}


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", KINDS)
def test_2000_of_a_kind(kind: str) -> None:
    found = check([*outcomes([(kind, seed) for seed in range(N)])])
    assert found[kind, "refused:"] > N // 100
    assert found[kind, "read"]
