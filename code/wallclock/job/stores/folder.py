"""A dataset in a folder; its lock is the kernel's.

Names are relative, with slashes. A part is its row file and, in `FOLDERS`, its other files, all
named after the part; those count where the row file is there.
"""

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from wallclock.errors import UserError
from wallclock.files import why_unwritable, write_bytes

#: The folders of a part's other files.
FOLDERS = ("_checksums", "_failures", "_unreached")
LOCK, PUBLISHING = ".lock", ".publishing"
#: How the names of a dataset's files and folders begin.
_OWN = ("part-", "_", ".")


@dataclass(frozen=True)
class Folder:
    """Parts are written below a hidden name, flushed, and renamed; no link in it is followed."""

    out: Path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other jobs out; the kernel releases the lock, also of a process killed -9.

        Raises UserError: another job has it, or it cannot be written.
        """
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            for name in os.listdir(self.out):
                if name.startswith(_OWN):
                    self._at(name)
            file = self._at(LOCK).open("a", encoding="ascii")
        except OSError as error:
            raise UserError(f"{self.out} cannot be written: {error.strerror}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                why = f"another job is writing to {self.out}; wait for it, or stop it"
                raise UserError(why) from None
            with self._publishing():
                self._finish()
            yield

    def read(self, name: str) -> bytes:
        """A file. Raises FileNotFoundError."""
        return self._at(name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Replace a file."""
        write_bytes(self._at(name), data)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that is not there; False: it is, and stays."""
        with self._publishing():
            if is_new := not self._at(name).exists():
                self._at(name).parent.mkdir(exist_ok=True)
                write_bytes(self._at(name), data)
            return is_new

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""
        self._at(name).unlink(missing_ok=True)

    def names(self, prefix: str) -> Iterator[str]:
        """The files that begin so, in any order."""
        self._at(prefix.rpartition("/")[0])
        return (path.relative_to(self.out).as_posix() for path in self.out.glob(f"{prefix}*"))

    def open(self, row: str) -> Any:
        """A row file, as pyarrow reads it."""
        return pa.OSFile(os.fsencode(self._at(row)))  # of a str it takes UTF-8 alone

    @contextmanager
    def piece(self, row: str, name: str) -> Iterator[Path | None]:
        """A file of a part and those beside it, on this machine; None where it has no such file."""
        yield self._path(name)

    def size(self, row: str, name: str) -> int | None:
        """The bytes of a file of a part; None where it has no such file."""
        path = self._path(name)
        return path.stat().st_size if path else None

    def _path(self, name: str) -> Path | None:
        path = self._at(name)
        if path.is_file():
            return path
        # Of a dataset that was copied from a bucket.
        part, _, extension = path.name.partition(".")
        copied = next(path.parent.glob(f"{part}.*.{extension}"), None)
        return copied and self._at(copied.relative_to(self.out).as_posix())

    def _at(self, name: str) -> Path:
        """Where a file or folder is. Raises UserError: it, or its folder, is a link or a device."""
        path = self.out / name
        for at in (path.parent, path) if "/" in name else (path,):
            with suppress(FileNotFoundError):
                mode = at.lstat().st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    kind = "a symbolic link" if stat.S_ISLNK(mode) else "no regular file"
                    raise UserError(f"{at} is {kind}, which no job opens; remove it")
        return path

    @contextmanager
    def staging(self, part: str) -> Iterator[Path]:
        """A folder of this machine for the files of a part. Raises UserError: its disk is full."""
        work = self.out / f".{part}-{uuid4().hex}.tmp"
        with full_disk(self.out):
            yield work
            shutil.rmtree(work, ignore_errors=True)

    def tag(self, row: str) -> str:
        """Changes when a part is replaced. Raises UserError: there is no such part."""
        try:
            status = self._at(row).stat()
        except FileNotFoundError as error:
            raise UserError(f"{self.out}/{row} is gone; run the same command again") from error
        return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"

    def commit(self, staged: Path, row: str, tag: str = "") -> bool:
        """Take a part's files: all of them; none, and False, where the part is there already.

        With a tag, in the place of the part that has it; none where it has another one.
        """
        for path in staged.rglob("*"):
            _sync(path)
        with self._publishing():
            (staged / row).stat()  # it may have been taken away
            if tag:
                self._finish()
            if self.tag(row) != tag if tag else self._at(row).exists():
                return False
            if tag:
                staged = staged.rename(self.out / f".{Path(row).stem}.ready")
                _sync(self.out)
            self._put(staged)
            return True

    def _finish(self) -> None:
        """Put in their places the parts in whose replacement a process was killed."""
        for path in self.out.glob(".part-*.ready"):
            self._put(path)

    def _put(self, staged: Path) -> None:
        """Move the files of a part to their places, the row file last."""
        written = [p.relative_to(staged) for p in staged.rglob("*") if p.is_file()]
        for path in sorted(written, key=lambda path: (path.suffix == ".parquet", path)):
            target = self._at(path.as_posix())
            if not target.parent.is_dir():
                target.parent.mkdir()
                _sync(self.out)
            os.replace(staged / path, target)
            _sync(target.parent)
        shutil.rmtree(staged)

    def remove_leftovers(self) -> None:
        """Remove temporary files, and files of parts that were not committed."""
        with self._publishing():
            for path in self.out.glob(".*.tmp"):
                if path.is_dir() and not path.is_symlink():
                    # Under another name no process can still publish from it.
                    shutil.rmtree(path.rename(path.with_suffix(".old.tmp")), ignore_errors=True)
                else:
                    path.unlink()
            rows = self.out.glob("part-*.parquet")
            committed = {path.name.partition(".")[0] for path in rows}
            for place in (self.out, *map(self._at, FOLDERS)):
                for path in place.glob("part-[0-9]*"):
                    if path.name.partition(".")[0] not in committed:
                        path.unlink()

    @contextmanager
    def _publishing(self) -> Iterator[None]:
        with self._at(PUBLISHING).open("a", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def full_disk(where: Path) -> Iterator[None]:
    """Raise UserError where the block finds the disk of a folder full, or a file too large."""
    try:
        yield
    except OSError as error:
        if why := why_unwritable(error, where):
            raise UserError(f"{why}: whole parts are kept") from error
        raise
