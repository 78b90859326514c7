"""What is asked of a place where the files of a dataset are.

Names are relative, with slashes. A part is its row file and, beside that or in `FOLDERS`, its other
files, all named after the part; those count where the row file is there.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from wallclock.errors import UserError
from wallclock.files import why_unwritable

#: The folders of a part's other files.
FOLDERS = ("_checksums", "_failures", "_thumbnails", "_unreached")
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

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that is not there; False: it is, and stays."""

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""

    def open(self, row: str) -> Any:
        """A row file, as pyarrow reads it."""

    def piece(self, row: str, name: str) -> AbstractContextManager[Path | None]:
        """A file of a part and those beside it, on this machine; None where it has no such file."""

    def size(self, row: str, name: str) -> int | None:
        """The bytes of a file of a part; None where it has no such file."""

    def staging(self, part: str) -> AbstractContextManager[Path]:
        """A folder of this machine for the files of a part. Raises UserError: its disk is full."""

    def tag(self, row: str) -> str:
        """Changes when a part is replaced. Raises UserError: there is no such part."""

    def commit(self, staged: Path, row: str, tag: str = "") -> bool:
        """Take a part's files: all of them; none, and False, where the part is there already.

        With a tag, in the place of the part that has it; none where it has another one.
        """

    def remove_leftovers(self) -> None:
        """Remove what a kill left."""


@contextmanager
def full_disk(where: Path) -> Iterator[None]:
    """Raise UserError where the block finds the disk of a folder full, or a file too large."""
    try:
        yield
    except OSError as error:
        if why := why_unwritable(error, where):
            raise UserError(f"{why}: whole parts are kept") from error
        raise
