"""Where the files of a dataset are: what is asked of such a place, and a folder. A bucket: `s3.py`.

Names are relative, with slashes. A part is its row file and, beside that or in `FOLDERS`, its other
files, all named after the part; those count where the row file is there.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from wallclock.errors import UserError
from wallclock.files import disk_is_full, write_bytes

LOCK, PUBLISHING = ".lock", ".publishing"
FOLDERS = ("failures", "rows", "thumbnails")

#: Shows a line to the user.
Say = Callable[[str], None]


class Store(Protocol):
    """A place for one dataset. It can be pickled; the copy does not hold the lock."""

    @property
    def out(self) -> Path | str:
        """What a user calls it."""

    def locked(self, say: Say | None = None) -> AbstractContextManager[None]:
        """Keep other jobs out; `say` gets a line where that takes a while.

        Raises UserError: another one has it, or it cannot be written.
        """

    def names(self, prefix: str) -> Iterator[str]:
        """The files that begin so, in any order."""

    def read(self, name: str) -> bytes:
        """A file. Raises FileNotFoundError."""

    def write(self, name: str, data: bytes) -> None:
        """Replace a file."""

    def open(self, row: str) -> Any:
        """A row file, as pyarrow reads it."""

    def piece(self, row: str, name: str) -> AbstractContextManager[Path | None]:
        """A file of a part and those beside it, on this machine; None where it has no such file."""

    def staging(self, part: str) -> AbstractContextManager[Path]:
        """A folder of this machine for the files of a part. Raises UserError: its disk is full."""

    def commit(self, staged: Path, row: str) -> None:
        """Take a part's files: all of them; none where the part is there already."""

    def remove_leftovers(self, folder: str) -> None:
        """Remove what a kill left; `folder`: of the row files, with its slash."""


def at(out: str | Path) -> Store:
    """The place that a user names: a folder, or `s3://bucket/prefix`."""
    if str(out).startswith("s3:/"):
        from wallclock.job.s3 import S3

        return S3.named(str(out))
    return Folder(Path(out).expanduser().resolve())


@dataclass(frozen=True)
class Folder:
    """A folder. A part's files are written below a hidden name, flushed, and renamed."""

    out: Path

    @contextmanager
    def locked(self, say: Say | None = None) -> Iterator[None]:
        """See `Store`. The kernel releases the lock, also of a process killed -9."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            file = (self.out / LOCK).open("a")
        except OSError as error:
            raise UserError(f"{self.out} cannot be written: {error.strerror}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                why = f"another job is writing to {self.out}; wait for it, or stop it"
                raise UserError(why) from None
            yield

    def read(self, name: str) -> bytes:
        """See `Store`."""
        return (self.out / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """See `Store`."""
        write_bytes(self.out / name, data)

    def names(self, prefix: str) -> Iterator[str]:
        """See `Store`."""
        return (path.relative_to(self.out).as_posix() for path in self.out.glob(f"{prefix}*"))

    def open(self, row: str) -> Any:
        """See `Store`."""
        return self.out / row

    @contextmanager
    def piece(self, row: str, name: str) -> Iterator[Path | None]:
        """See `Store`."""
        path = self.out / name
        # Of a dataset that was copied from a bucket.
        copied = path.parent.glob(f"{path.stem}.*{path.suffix}")
        yield path if path.is_file() else next(copied, None)

    @contextmanager
    def staging(self, part: str) -> Iterator[Path]:
        """See `Store`."""
        work = self.out / f".{part}-{uuid4().hex}.tmp"
        with full_disk(self.out):
            yield work
            shutil.rmtree(work)

    def commit(self, staged: Path, row: str) -> None:
        """See `Store`."""
        written = sorted(p.relative_to(staged) for p in staged.rglob("*") if p.is_file())
        for path in written:
            _sync(staged / path)
        last = Path(row)
        written.remove(last)
        with self._publishing():
            for path in () if (self.out / last).exists() else (*written, last):
                (self.out / path).parent.mkdir(exist_ok=True)
                os.replace(staged / path, self.out / path)
                _sync((self.out / path).parent)

    def remove_leftovers(self, folder: str) -> None:
        """See `Store`: temporary files, and files of parts that were not committed."""
        with self._publishing():
            for path in self.out.glob(".*.tmp"):
                if path.is_dir():  # under another name no process can still publish from it
                    shutil.rmtree(path.rename(path.with_suffix(".old.tmp")), ignore_errors=True)
                else:
                    path.unlink()
            rows = self.out.glob(f"{folder}part-*.parquet")
            whole = {path.name.partition(".")[0] for path in rows}
            for place in (self.out, *(self.out / name for name in FOLDERS)):
                for path in place.glob("part-[0-9]*"):
                    if path.name.partition(".")[0] not in whole:
                        path.unlink()

    @contextmanager
    def _publishing(self) -> Iterator[None]:
        with (self.out / PUBLISHING).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


@contextmanager
def full_disk(where: Path) -> Iterator[None]:
    """Raise UserError where the block finds the disk of a folder full."""
    try:
        yield
    except OSError as error:
        if not disk_is_full(error):
            raise
        fix = "free some and run the same command again: whole parts are kept"
        raise UserError(f"no space left while writing {where}; {fix}") from error


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
