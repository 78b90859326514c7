"""A small ABO: objects as the bucket has them, generated for the tests."""

import gzip
import hashlib
from collections.abc import Iterable, Sequence

from tests import making

NAME = "amazon-berkeley-objects"
CATALOGUE = "images/metadata/images.csv.gz"

#: (image_id, height, width, path), as in the catalogue.
Row = tuple[str, int, int, str]


def rows(n: int, prefixes: int = 256) -> list[Row]:
    """A catalogue of `n` images spread over the first prefixes, the same on every machine."""
    listed = []
    for number in range(n):
        digest = hashlib.sha256(f"image {number}".encode()).hexdigest()
        prefix = f"{int(digest[:2], 16) % prefixes:02x}"
        # Real ids contain + and -, and differ by case.
        identity = f"{number % 10}1{'+-aAbB'[number % 6]}{digest[8:15]}L"
        path = f"{prefix}/{prefix}{digest[2:8]}.jpg"
        listed.append((identity, 40 + number % 7, 60 + number % 11, path))
    return listed


def catalogue(
    rows: Iterable[Sequence[object]], header: str = "image_id,height,width,path"
) -> bytes:
    """`images.csv.gz` with these rows, the same bytes each time."""
    lines = [header, *(",".join(str(value) for value in row) for row in rows)]
    return gzip.compress("\n".join([*lines, ""]).encode("utf-8", "surrogateescape"), mtime=0)


def objects(n: int, prefixes: int = 70) -> dict[str, bytes]:
    """Every object of a small ABO by key: n images in both sets, one PNG named .jpg."""
    listed = rows(n, prefixes)
    made = {CATALOGUE: catalogue(listed)}
    for number, (_, height, width, path) in enumerate(listed):
        pixels = making.picture(width, height, number)
        large = making.encode(pixels, "JPEG", quality=92)
        made[f"images/original/{path}"] = making.encode(pixels, "PNG") if number == 3 else large
        made[f"images/small/{path}"] = making.jpeg(width // 2, height // 2, number)
    return made
