"""A full disk: one line, no partial file, and the same command resumes."""

import ctypes
import ctypes.util
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.cpu import cells as cpu
from harness import records, sinks
from harness.table import read_columns, read_table
from tests import making
from tests.conftest import RunMain
from wallclock import files
from wallclock.errors import UserError

_MNT_DETACH = 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=1m"):
        pytest.skip(f"no file system can be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        yield folder
    finally:
        libc.umount2(os.fsencode(folder), _MNT_DETACH)


def fill(disk: Path, leave: int) -> Path:
    """Take all of a disk's space but `leave` bytes."""
    filler = disk / "filler"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    filler.write_bytes(bytes(max(0, free - leave)))
    return filler


@pytest.mark.parametrize(
    ("sink", "leave"),
    [
        ("parquet", 8 << 10),
        pytest.param("parquet", 0, marks=pytest.mark.slow),
        pytest.param("lmdb", 8 << 10, marks=pytest.mark.slow),
        pytest.param("npy", 40 << 10, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_full_disk_is_one_line_and_the_next_run_resumes(
    sink: str, leave: int, small_disk: Path, tmp_path: Path, run_main: RunMain
) -> None:
    """From no byte at all, over the corpus list, the vectors and a record, to the figures."""
    images = making.folder(tmp_path / "images", 6)
    out, figures = small_disk / "data", small_disk / "figures"
    arguments = (
        "--experiment",
        "cpu",
        "corpus=folder",
        f"corpus.path={images}",
        "repeats=3",
        "model=null",
        "device=cpu",
        f"experiment.cpu.recipe.sink={sink}",
        f"out={out}",
        f"figures={figures}",
    )
    filler = fill(small_disk, leave)
    done = run_main(*arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("wallclock: ")
    assert "no space left" in line.lower()
    check_files(out)
    before = {path.parent.name for path in out.glob("runs/*/*/COMPLETE")}
    filler.unlink()
    again = run_main(*arguments)
    assert again.returncode == 0, again.stderr
    assert f"{3 - len(before)} cells measured, {len(before)} reused" in again.stdout
    check_files(out)
    assert [row["status"] for row in read_table(out / cpu.CSV)] == ["ok"]
    assert not list(small_disk.rglob("*.tmp"))


def check_files(out: Path) -> None:
    """Every file can be read to its end; a folder without COMPLETE is no record."""
    for path in out.glob("*.csv"):
        assert read_columns(path)
        read_table(path)
    for folder in out.glob("runs/*/[!.]*/"):
        records.load(folder)
    for path in out.glob("runs/*/[!.]*/vectors.*"):
        if path.suffix != ".json":
            assert len(sinks.read(path)[0]) == 6


NO_SPACE = (UserError, "no space left while writing")
CODES = {errno.ENOSPC: NO_SPACE, errno.EDQUOT: NO_SPACE, errno.EIO: (OSError, "Input/output error")}


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_only_no_space_is_a_user_error_in_any_call(
    code: int, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    files.write_text(tmp_path / "a", "old")
    monkeypatch.setattr(os, call, fail)
    expected, line = CODES[code]
    with pytest.raises(expected, match=line):
        files.write_text(tmp_path / "a", "new")
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text(encoding="utf-8") == "old"
