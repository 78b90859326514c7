"""The images under a folder, found by content, and its other files."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wallclock.formats import HEAD_BYTES, sniff

#: A file with such a name is listed even if its content is no image.
EXTENSIONS = frozenset(
    {
        ".jpg",
        ".jpeg",
        ".jpe",
        ".jfif",
        ".png",
        ".webp",
        ".gif",
        ".bmp",
        ".tif",
        ".tiff",
        ".avif",
        ".jp2",
        ".j2k",
        ".j2c",
        ".jpc",
        ".jpx",
        ".heic",
        ".heif",
        ".hif",
    }
)


@dataclass(frozen=True)
class FolderListing:
    """What lies under a folder, relative to it, in the order of the names' bytes.

    `names`: the images, and what cannot be read; `others`: the files that are no images. Hidden
    files are in neither.
    """

    names: list[str]
    others: list[str]


def list_folder(root: Path) -> FolderListing:
    """List the files under a folder. Only those whose extension says nothing are opened."""
    listing = FolderListing([], [])
    for name, is_image in _walk(root):
        (listing.names if is_image else listing.others).append(name)
    listing.names.sort(key=os.fsencode)
    listing.others.sort(key=os.fsencode)
    return listing


def candidates(root: Path) -> Iterator[str]:
    """The names of the images under a folder, and of what cannot be read, relative to it."""
    return (name for name, is_image in _walk(root) if is_image)


def _walk(root: Path) -> Iterator[tuple[str, bool]]:
    """Each file's name relative to the folder, and whether it is listed as an image."""
    errors: list[OSError] = []
    for folder, subfolders, files in os.walk(root, onerror=errors.append):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in files:
            if not name.startswith("."):
                path = os.path.join(folder, name)
                is_image = is_image_name(name) or _is_image(path)
                yield os.path.relpath(path, root), is_image
    # An unreadable folder becomes a failure row.
    yield from ((os.path.relpath(error.filename, root), True) for error in errors)


def is_image_name(name: str) -> bool:
    """Whether a file's extension is an image's."""
    return os.path.splitext(name)[1].lower() in EXTENSIONS


def _is_image(path: str) -> bool:
    with suppress(OSError):
        if stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "rb") as file:
                return sniff(file.read(HEAD_BYTES)) is not None
    return False


def id_of(name: str) -> str:
    """A file's id: its name; bytes that are not UTF-8 as \\xNN, which every sink can store."""
    raw = name.replace(os.sep, "/").encode("utf-8", "surrogateescape")
    return raw.decode("utf-8", "backslashreplace")
