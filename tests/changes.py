"""Files as an attacker or a bad disk would change them, by their formats."""

import gzip
import json
import random
import struct
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from tests import thrift

EVIL = "x\x1b]0;owned\x07\nFAKE: all is well" + "y" * 5000
HUGE = (0, 1, 127, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
Mutate = Callable[[random.Random, bytes], bytes]


def of_bytes(draw: random.Random, data: bytes) -> bytes:
    """Bits, bytes, numbers and pieces changed anywhere."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 5, 20))):
        at = draw.randrange(len(changed) + 1)
        count = draw.choice((1, 1, 2, 4, 8, 64, 512))
        number = draw.choice(HUGE) & 0xFFFFFFFFFFFFFFFF
        match draw.randrange(9):
            case 0:
                changed[at : at + 1] = bytes(x ^ 1 << draw.randrange(8) for x in changed[at:][:1])
            case 1:
                changed[at : at + count] = draw.randbytes(count)
            case 2:
                del changed[at : at + count]
            case 3:
                changed[at:at] = changed[at : at + count] * draw.randint(1, 3)
            case 4:  # swapped with another piece
                to = draw.randrange(len(changed) + 1)
                changed[at : at + count], changed[to : to + count] = (
                    changed[to : to + count],
                    changed[at : at + count],
                )
            case 5:
                changed[at & ~3 : (at & ~3) + 4] = struct.pack("<I", number & 0xFFFFFFFF)
            case 6:
                changed[at & ~7 : (at & ~7) + 8] = struct.pack(draw.choice(("<Q", ">Q")), number)
            case 7:
                changed[at : at + count] = draw.choices(b'0123456789[]{}",:-e\x00\xff\n', k=count)
            case _ if draw.random() < 0.3:
                del changed[at:]
    return bytes(changed)


VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    3,
    10**6,
    10**9,
    10**400,
    1.5,
    1e-300,
    float("nan"),
    float("inf"),
]
VALUES += ["", EVIL, "\ud800", [], [1], [1, 2, 3], ["a"], {}, {"a": 1}, {"height": 5, "width": 9}]
NAMES = ("vision_config", "depths", "dtype", "hidden_sizes", "crop_size", "do_pad", "id2label")


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every object or list in a value, with each of its keys."""
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in list(keys):
        yield value, key
        yield from places(value[key])


def of_json(draw: random.Random, data: bytes) -> bytes:
    """Values of other types and sizes; or any bytes."""
    if draw.random() < 0.3:
        return of_bytes(draw, data)
    content = json.loads(data)
    for _ in range(draw.choice((1, 1, 2))):
        inside, key = draw.choice([*places(content), (content, draw.choice(NAMES))])
        if isinstance(inside, dict) or key in range(len(inside)):
            inside[key] = deepcopy(draw.choice(VALUES))
    return json.dumps(content).encode()


def of_lines(draw: random.Random, data: bytes) -> bytes:
    """One of several JSON texts."""
    lines = data.splitlines()
    at = draw.randrange(len(lines))
    lines[at] = of_json(draw, lines[at])
    return b"\n".join(lines)


def of_weights(draw: random.Random, data: bytes) -> bytes:
    """The header of a file of safetensors, its length mended; or any bytes of it."""
    size = struct.unpack("<Q", data[:8])[0]
    if draw.random() < 0.3:
        return of_bytes(draw, data[: size + 40]) + data[size + 40 :]
    header = of_json(draw, data[8 : 8 + size])
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


def of_tar(draw: random.Random, data: bytes) -> bytes:
    """Fields of headers, their checksums mended; or any bytes."""
    if draw.random() < 0.3:
        return of_bytes(draw, data)
    changed = bytearray(data)
    headers = [at for at in range(0, len(data), 512) if data[at + 257 : at + 262] == b"ustar"]
    for _ in range(draw.choice((1, 1, 3))):
        at = draw.choice(headers)
        header = changed[at : at + 512]
        match draw.randrange(5):
            case 0:
                header[156:157] = draw.choice(
                    (b"0", b"1", b"2", b"5", b"6", b"L", b"K", b"x", b"g", b"S")
                )
            case 1:
                header[124:136] = draw.choice(
                    (b"77777777777\0", b"\x80" + b"\xff" * 11, b"-1".ljust(12))
                )
            case 2:
                header[124:136] = b"\x80" + struct.pack(">xxxQ", draw.choice(HUGE[:-1]))
            case 3:
                header = bytearray(of_bytes(draw, bytes(header))[:512].ljust(512, b"\0"))
            case _:  # what follows: data, or what a header says of the next one
                piece = of_bytes(draw, bytes(changed[at + 512 : at + 1024]))[:512].ljust(512, b"\0")
                changed[at + 512 : at + 1024] = piece
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % (sum(header) & 0o777777)
        changed[at : at + 512] = header
    return bytes(changed)


def of_gzip(draw: random.Random, data: bytes) -> bytes:
    """What is packed, mostly."""
    if draw.random() < 0.3:
        return of_bytes(draw, data)
    return gzip.compress(of_tar(draw, gzip.decompress(data)), 1)


def of_parquet(draw: random.Random, data: bytes) -> bytes:
    """Fields of the footer or of a page's header, all lengths mended; or any bytes."""
    if draw.random() < 0.2:
        return of_bytes(draw, data)
    size = struct.unpack("<I", data[-8:-4])[0]
    pages, footer = data[: -8 - size], thrift.parse(data, len(data) - 8 - size)[0]
    if draw.random() < 0.4:
        pages = _with_another_page(draw, pages, footer)
    else:
        for _ in range(draw.choice((1, 1, 2))):
            thrift.mutate(draw, footer)
    said = thrift.dump(footer)
    if draw.random() < 0.1:
        said = of_bytes(draw, said)
    return pages + said + struct.pack("<I", len(said)) + b"PAR1"


def _with_another_page(draw: random.Random, pages: bytes, footer: Any) -> bytes:
    """Change a page, its header or its data; offsets and sizes in the footer follow."""
    groups = thrift.field(footer, 4).items
    columns = [thrift.field(chunk, 3) for group in groups for chunk in thrift.field(group, 1).items]
    column = draw.choice(columns)
    starts = [thrift.field(column, number) for number in (9, 11)]
    at = draw.choice([start for start in starts if start is not None])
    header, end = thrift.parse(pages, at)
    stop = end + (thrift.field(header, 3) or 0)
    data = pages[end:stop]
    if draw.random() < 0.3:
        data = of_bytes(draw, data)
        thrift.set_field(header, 3, len(data))
    else:
        thrift.mutate(draw, header)
    page = thrift.dump(header) + data
    grown = len(page) - (stop - at)
    thrift.set_field(column, 7, thrift.field(column, 7) + grown)
    for other in columns:
        for number in (9, 11):
            if (start := thrift.field(other, number)) and start > at:
                thrift.set_field(other, number, start + grown)
    return pages[:at] + page + pages[stop:]
