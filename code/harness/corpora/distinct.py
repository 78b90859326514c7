"""Files of distinct bytes and few pictures: what a job of millions of images meets, at little cost.

The segment for comments has a number, which changes a file's hash and no pixel.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from harness.corpora import check_space

#: Files of a folder: a million in one would slow some file systems down.
_FOLDER = 1000
#: Of the disk, and bytes of it that stay free, for the job's own files and the rest of the machine.
_BLOCK, _LEFT_FREE = 4096, 1 << 30
#: The marker that a JPEG begins with, and that of a comment (ISO/IEC 10918-1, B.2.1 and B.2.4.5).
_START, _COMMENT = b"\xff\xd8", b"\xff\xfe"
_NUMBER_BYTES = 8
#: Bytes that a copy is longer than its picture: marker, length, number.
EXTRA = 2 + 2 + _NUMBER_BYTES


def numbered(jpeg: bytes, number: int) -> bytes:
    """The same picture with a number in a comment. Raises ValueError: it is no JPEG."""
    if not jpeg.startswith(_START):
        raise ValueError("no JPEG: it does not begin with FF D8")
    length = (2 + _NUMBER_BYTES).to_bytes(2, "big")
    comment = _COMMENT + length + number.to_bytes(_NUMBER_BYTES, "big")
    return _START + comment + jpeg[len(_START) :]


def lay_out(pictures: Sequence[Path], folder: Path, n: int) -> list[Path]:
    """Write n files of distinct bytes, of the pictures in turn, and wait until the disk has them.

    Args:
        pictures: JPEGs.
        folder: a new one; the files lie in subfolders of it.

    Raises UserError: there is not enough space; ValueError: a picture is no JPEG.
    """
    folder.mkdir(parents=True)
    blocks = sum(-(-(path.stat().st_size + EXTRA) // _BLOCK) for path in pictures)
    needed = blocks * _BLOCK * n / len(pictures) + _LEFT_FREE
    check_space(folder, needed, f"{n:,} distinct files")
    paths = []
    for number in range(n):
        path = folder / f"{number // _FOLDER:06}" / f"{number:09}.jpg"
        if number % _FOLDER == 0:
            path.parent.mkdir()
        path.write_bytes(numbered(pictures[number % len(pictures)].read_bytes(), number))
        paths.append(path)
    os.sync()  # or the disk would be busy with them while a job is timed
    return paths
