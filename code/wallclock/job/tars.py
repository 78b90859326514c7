"""The tars of `keep=thumbnails` as a source: `<key>.jpg`, then `<key>.json` with its id and hash.

They are read as strictly as they are written: a tar with anything else in it is damaged, and an
offset in it may be wrong.
"""

import io
import json
import os
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from wallclock.errors import UserError, first_line

#: Zeros at the end of a tar: two blocks, and at most as many as other tools fill a tar with.
_LEAST_END, _MOST_END = 2 * tarfile.BLOCKSIZE, 2 * tarfile.RECORDSIZE
#: What `tarfile` and `json` raise about bytes that are not theirs.
_DAMAGED = (tarfile.TarError, OSError, ValueError, KeyError, TypeError, RecursionError)


def members(tars: Iterable[Path]) -> Iterator[tuple[str, bytes, str]]:
    """The id, the place, as `Member` takes it, and the sha256 of each image.

    Raises UserError: a tar is damaged; one line with its name.
    """
    for path in tars:
        try:
            yield from _members(path)
        except _DAMAGED as error:
            why = f"{path} is damaged: {first_line(error)}"
            fix = "verify its dataset, and run that job again"
            raise UserError(f"{why}; {fix}") from error


def _members(path: Path) -> Iterator[tuple[str, bytes, str]]:
    """Of one tar. Raises ValueError, and what `_DAMAGED` names: it was not written so."""
    # Never decompressed: offsets are those of the file.
    with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
        before, image, end = "", None, 0
        for member in tar:
            if not member.isreg() or member.issparse():
                raise ValueError(f"{member.name} is no file")
            key, _, extension = member.name.rpartition(".")
            end = member.offset_data + -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
            if image is None and extension == "jpg" and key > before:
                image, before = member, key
            elif image is not None and extension == "json" and key == before:
                yield _row(path, image, os.pread(file.fileno(), member.size, member.offset_data))
                image = None
            else:
                raise ValueError(f"{member.name} is out of place")
        # tarfile takes a damaged header for the end.
        rest = os.pread(file.fileno(), _MOST_END + 1, end)
        if image is not None or any(rest) or not _LEAST_END <= len(rest) <= _MOST_END:
            raise ValueError("it has no end")


def _row(path: Path, image: tarfile.TarInfo, text: bytes) -> tuple[str, bytes, str]:
    about = json.loads(text)
    name, digest = about["id"], about["sha256"]
    if not isinstance(name, str) or not isinstance(digest, str):
        raise TypeError("an id or a sha256 is no text")
    return name, f"{path.name}@{image.offset_data}+{image.size}".encode(), digest


class Member(io.RawIOBase):
    """An image in a tar, `<path>@<offset>+<bytes>`; opened when it is read."""

    def __init__(self, where: str) -> None:
        self._path, _, span = where.rpartition("@")
        self._offset, self._size = map(int, span.split("+"))

    def read(self, size: int = -1) -> bytes:
        """All of it."""
        with open(self._path, "rb") as file:
            return os.pread(file.fileno(), self._size, self._offset)
