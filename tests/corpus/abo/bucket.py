"""A small ABO: a tree laid out as the bucket is, made for the tests."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests import making

NAME = "amazon-berkeley-objects"
LICENCE = b"Creative Commons Attribution 4.0 International Public License\n"
README = b"# ABO\n\n## License\n\nCC BY 4.0\n\n## Attribution\n\nCredit for all of it:\n\n> Someone\n\n## More\n"

#: (image_id, height, width, path), as the catalogue has them.
Row = tuple[str, int, int, str]


def rows(n: int, prefixes: int = 256) -> list[Row]:
    """A catalogue of `n` images spread over the first prefixes, the same on every machine."""
    found = []
    for number in range(n):
        digest = hashlib.sha256(f"image {number}".encode()).hexdigest()
        prefix = f"{int(digest[:2], 16) % prefixes:02x}"
        # Real ids hold + and -, and differ by case.
        identity = f"{number % 10}1{'+-aAbB'[number % 6]}{digest[8:15]}L"
        found.append(
            (identity, 40 + number % 7, 60 + number % 11, f"{prefix}/{prefix}{digest[2:8]}.jpg")
        )
    return found


def catalogue(
    rows: Iterable[Sequence[object]], header: str = "image_id,height,width,path"
) -> bytes:
    """`images.csv.gz` with these rows, the same bytes each time."""
    lines = [header, *(",".join(str(value) for value in row) for row in rows)]
    return gzip.compress("\n".join([*lines, ""]).encode("utf-8", "surrogateescape"), mtime=0)


def objects(n: int, prefixes: int = 70) -> dict[str, bytes]:
    """Every object of a small ABO by key: n images in both sets, one of them a PNG by another name."""
    listed = rows(n, prefixes)
    found = {
        "LICENSE-CC-BY-4.0.txt": LICENCE,
        "README.md": README,
        "images/metadata/images.csv.gz": catalogue(listed),
    }
    for number, (_, height, width, path) in enumerate(listed):
        picture = making.picture(width, height, number)
        original = (
            making.encode(picture, "PNG")
            if number == 3
            else making.encode(picture, "JPEG", quality=92)
        )
        found[f"images/original/{path}"] = original
        found[f"images/small/{path}"] = making.jpeg(width // 2, height // 2, number)
    return found


def write(found: Mapping[str, bytes], tree: Path) -> Path:
    """The objects as files under `tree/<bucket>`; returns the bucket's folder."""
    for key, data in found.items():
        path = tree / NAME / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tree / NAME
