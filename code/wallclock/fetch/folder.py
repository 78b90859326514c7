"""The images under a folder, found by content, and its other files."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from wallclock.formats import HEAD_BYTES, sniff
from wallclock.outside import text_of

#: A file with such a name is listed even if its content is no image.
_NAMES = "jpg jpeg jpe jfif png webp gif bmp tif tiff avif jp2 j2k j2c jpc jpx heic heif hif"
EXTENSIONS = frozenset(f".{name}" for name in _NAMES.split())


@dataclass
class FolderListing:
    """The files under a folder, by their names relative to it.

    An iteration has the images, in the order of the names' bytes. When it has ended, `others` has
    what was skipped: files that are no images or hidden, hidden folders (which are not opened) and
    links to folders. `unreadable` has the folders that cannot be read.
    """

    root: Path
    others: list[str] = field(default_factory=list, init=False)
    unreadable: list[str] = field(default_factory=list, init=False)

    def __iter__(self) -> Iterator[str]:
        """List them. Only the names of one folder and those above it are in memory."""
        root = os.fsencode(self.root) + b"/"
        # The next one is the last one. A folder ends with a slash, which puts it where its files
        # belong.
        waiting = [b""]
        while waiting:
            name = waiting.pop()
            if name.startswith(b".") or b"/." in name:
                self.others.append(os.fsdecode(name))
                continue
            if name and not name.endswith(b"/"):
                if is_image_name(text := os.fsdecode(name)) or _is_image(root + name):
                    yield text
                else:
                    self.others.append(text)
                continue
            try:
                names = _entries(root + name, name)
            except OSError:
                self.unreadable.append(os.fsdecode(name[:-1]) or ".")
                continue
            names.sort(reverse=True)
            waiting += names


def _entries(folder: bytes, prefix: bytes) -> list[bytes]:
    """The names in a folder, with a prefix: subfolders with a slash, links to folders without."""
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                is_folder = entry.is_dir(follow_symlinks=False)
            except OSError:
                is_folder = False
            names.append(prefix + entry.name + b"/" * is_folder)
    return names


def is_image_name(name: str) -> bool:
    """Whether a file's extension is an image's."""
    return os.path.splitext(name)[1].lower() in EXTENSIONS


def _is_image(path: bytes) -> bool:
    with suppress(OSError):
        if stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "rb") as file:
                return sniff(file.read(HEAD_BYTES)) is not None
    return False


#: A file's id: the text of its name, which every sink can store.
id_of = text_of
