"""Boxes of ISO files (AVIF, HEIC): the sizes that they declare, and where their streams begin.

ISO/IEC 14496-12 (boxes), 23008-12 (items of pictures). A picture of HEIC may be a grid: an item of
a few bytes that names rows, columns, its own width and height, and its tiles, one of them any
number of times. libheif (1.23) takes the memory of the grid, and decodes its tiles, before it
compares the size with the file's other claim, `ispe`. Frames of AV1 may be larger than an AVIF
declares, and a decoder takes their memory before libavif compares the two.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import TypeVar

from wallclock.errors import ImageError

T = TypeVar("T")
#: Width and height in pixels.
Size = tuple[int, int]

#: These begin with a version and flags.
_FULL_BOXES = frozenset({b"meta", b"ispe", b"iloc", b"stco", b"co64", b"iinf", b"iref"})
#: Items that are made of others.
_GRID, _SAME, _OVERLAY = b"grid", b"iden", b"iovl"
_MADE = frozenset({_GRID, _SAME, _OVERLAY})
#: A kind of AV1's units; those before it are temporal delimiters, metadata, padding.
_SEQUENCE_HEADER, _MOST_UNITS = 1, 16


def _boxes(data: bytes, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """The boxes between two positions: kind, start and end of what each holds."""
    while at + 8 <= end:
        size, kind = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if size == 1:
            if at + 16 > end:
                return
            (size,) = struct.unpack_from(">Q", data, start)
            start += 8
        stop = at + size if size else end
        if stop < start:
            return
        yield kind, start, min(stop, end)
        at = stop


def _limited(parts: Iterable[T], most: int) -> Iterator[T]:
    """Those parts; raises `ImageError` where there are more than `most`."""
    for number, part in enumerate(parts):
        if number == most:
            raise ImageError("decode", f"more parts of a header than the limit of {most:,}")
        yield part


def spans(
    data: bytes, most: int, *path: bytes, within: tuple[int, int] | None = None
) -> list[tuple[int, int]]:
    """Start and end of what boxes hold, by a path of kinds; without version and flags.

    Raises ImageError: more than `most` boxes.
    """
    reached = [within or (0, len(data))]
    for wanted in path:
        skipped = 4 if wanted in _FULL_BOXES else 0
        inner = _limited((box for span in reached for box in _boxes(data, *span)), most)
        reached = [(start + skipped, end) for kind, start, end in inner if kind == wanted]
    return reached


def avif_sizes(data: bytes, most: int) -> Iterator[Size]:
    """Of every item, and of the frames that are decoded: of items, and the first of every track."""
    yield from _item_sizes(data, most)
    for start in _limited(_first_streams(data, most), most):
        try:
            size = av1_frame_size(data, start)
        except IndexError:  # outside the data
            continue
        if size is not None:
            yield size


def heic_sizes(data: bytes, most: int) -> Iterator[Size]:
    """Of every item, and of grids, which are made as large as their own item says."""
    yield from _item_sizes(data, most)
    yield from _grid_sizes(data, most)


def _item_sizes(data: bytes, most: int) -> Iterator[Size]:
    """What `ispe` says of pictures, their tiles, thumbnails and alpha planes."""
    for start, _ in spans(data, most, b"meta", b"iprp", b"ipco", b"ispe"):
        yield struct.unpack_from(">II", data, start)


def _first_streams(data: bytes, most: int) -> Iterator[int]:
    """Where items and the first samples of tracks begin."""
    for _, positions, _ in _places(data, most):
        yield from positions
    tables = (b"moov", b"trak", b"mdia", b"minf", b"stbl")
    for kind, word in ((b"stco", ">I"), (b"co64", ">Q")):
        for start, _ in spans(data, most, *tables, kind):
            yield struct.unpack_from(word, data, start + 4)[0]


def _grid_sizes(data: bytes, most: int) -> Iterator[Size]:
    """Of each grid its own size, and that of its tiles side by side, all of which are decoded.

    Raises:
        ImageError: pictures laid over one another, which may be any number of large ones; or a
            picture made of others that are made of others, each of which multiplies the work.
        struct.error, IndexError: the data ends.
    """
    kinds = _item_kinds(data, most)
    if _OVERLAY in kinds.values():
        raise ImageError("decode", "a HEIC of pictures laid over one another; convert it")
    sizes, parts = _sizes_by_item(data, most), _parts_by_item(data, most)
    for item, kind in kinds.items():
        of_parts = {kinds.get(part) for part in parts.get(item, ())}
        if of_parts & _MADE and (kind == _GRID or (kind == _SAME and _SAME in of_parts)):
            raise ImageError("decode", "a HEIC of grids within grids; convert it")
    for item, positions, is_whole in _places(data, most):
        if kinds.get(item) != _GRID:
            continue
        if not is_whole:
            raise ImageError("decode", "a HEIC whose grid is described in pieces; convert it")
        tiles = [(0, 0), *(sizes.get(part, (0, 0)) for part in parts.get(item, ()))]
        width, height = map(max, zip(*tiles, strict=True))
        for at in positions:
            flags, rows, columns = data[at + 1], data[at + 2] + 1, data[at + 3] + 1
            yield struct.unpack_from(">II" if flags & 1 else ">HH", data, at + 4)
            yield columns * width, rows * height


def _item_kinds(data: bytes, most: int) -> dict[int, bytes]:
    """Item → its kind, as `hvc1` or `grid`."""
    kinds: dict[int, bytes] = {}
    for start, end in spans(data, most, b"meta", b"iinf"):
        first = start + (4 if data[start - 4] else 2)  # behind the number of entries
        for at, _ in spans(data, most, b"infe", within=(first, end)):
            is_wide = data[at] > 2
            item, _, name = struct.unpack_from(">IH4s" if is_wide else ">HH4s", data, at + 4)
            kinds[item] = name
    return kinds


def _sizes_by_item(data: bytes, most: int) -> dict[int, Size]:
    """Item → the larger one of the sizes that are said of it."""
    sizes: dict[int, Size] = {}
    for within in spans(data, most, b"meta", b"iprp"):
        properties: list[Size] = []
        for span in spans(data, most, b"ipco", within=within):
            for kind, at, _ in _limited(_boxes(data, *span), most):
                is_size = kind == b"ispe"
                properties.append(struct.unpack_from(">II", data, at + 4) if is_size else (0, 0))
        for at, _ in spans(data, most, b"ipma", within=within):
            for item, number in _associations(data, at, most):
                if 0 < number <= len(properties):
                    (width, height), before = properties[number - 1], sizes.get(item, (0, 0))
                    sizes[item] = max(before[0], width), max(before[1], height)
    return sizes


def _associations(data: bytes, at: int, most: int) -> Iterator[tuple[int, int]]:
    """Of an `ipma`: items, and the number of each one's properties, counted from 1."""
    version, is_wide = data[at], data[at + 3] & 1
    (count,) = struct.unpack_from(">I", data, at + 4)
    at += 8
    for _ in _limited(range(count), most):
        (item,) = struct.unpack_from(">I" if version else ">H", data, at)
        at += 4 if version else 2
        n = data[at]
        numbers = struct.unpack_from(f">{n}H" if is_wide else f">{n}B", data, at + 1)
        at += 1 + (2 * n if is_wide else n)
        yield from ((item, number & (0x7FFF if is_wide else 0x7F)) for number in numbers)


def _parts_by_item(data: bytes, most: int) -> dict[int, set[int]]:
    parts: dict[int, set[int]] = {}
    for start, end in spans(data, most, b"meta", b"iref"):
        word, size = ("I", 4) if data[start - 4] else ("H", 2)
        for at, _ in spans(data, most, b"dimg", within=(start, end)):
            item, count = struct.unpack_from(f">{word}H", data, at)
            named = struct.unpack_from(f">{count}{word}", data, at + size + 2)
            parts.setdefault(item, set()).update(named)
    return parts


def _places(data: bytes, most: int) -> Iterator[tuple[int, list[int], bool]]:
    """Each item, where in the file it begins, and whether it is said in one piece."""
    payloads = [start for start, _ in spans(data, most, b"meta", b"idat")]
    for start, _ in spans(data, most, b"meta", b"iloc"):
        for item, method, offset, extents in _limited(_extents(data, start), most):
            # Method 0: in the file; 1: in `idat`; 2: in another item.
            positions = [at + offset for at in payloads] if method == 1 else [offset]
            yield item, positions, method < 2 and extents == 1


def _extents(data: bytes, at: int) -> Iterator[tuple[int, int, int, int]]:
    """Of an `iloc`: each item, its method, where its first extent begins, and how many it has."""
    version, sizes = data[at - 4], int.from_bytes(data[at : at + 2], "big")
    n_offset, n_length, n_base, n_index = (sizes >> shift & 15 for shift in (12, 8, 4, 0))
    n_index = n_index if version else 0
    of_id = 4 if version == 2 else 2
    (count,) = struct.unpack_from(">I" if version == 2 else ">H", data, at + 2)
    at += 2 + of_id
    for _ in range(count):
        item = int.from_bytes(data[at : at + of_id], "big")
        at += of_id
        method = 0
        if version:
            method, at = data[at + 1] & 15, at + 2
        base = int.from_bytes(data[at + 2 : at + 2 + n_base], "big")
        at += 2 + n_base
        (extents,) = struct.unpack_from(">H", data, at)
        first = at + 2 + n_index
        yield item, method, base + int.from_bytes(data[first : first + n_offset], "big"), extents
        at += 2 + extents * (n_index + n_offset + n_length)


def av1_frame_size(data: bytes, start: int) -> Size | None:
    """Width and height of the frames of the AV1 stream at `start`; None: no sequence header there.

    AV1 Bitstream & Decoding Process Specification, 5.3.1 (header of a unit), 4.10.5 (leb128) and
    5.5.1 (sequence header).

    Raises:
        ImageError: it has timing information, or is not among the first `_MOST_UNITS` units, as of
            no picture.
        IndexError: the data ends.
    """
    for _ in range(_MOST_UNITS):
        header = data[start]
        start += 1 + (header >> 2 & 1)
        if header >> 3 & 15 == _SEQUENCE_HEADER:
            # A size of one byte: the header has few.
            return _in_header(data, start + (header >> 1 & 1))
        if not header & 2:
            return None
        size, shift = 0, 0
        while data[start] & 0x80:
            size |= (data[start] & 0x7F) << shift
            start, shift = start + 1, shift + 7
        start += 1 + (size | data[start] << shift)
    raise ImageError("decode", f"AV1 with {_MOST_UNITS} units before its sequence header")


def _in_header(data: bytes, start: int) -> Size:
    at = 8 * start

    def read(n: int) -> int:
        """The next `n` bits, the first of them the highest."""
        nonlocal at
        at += n
        value = 0
        for position in range(at - n, at):
            value = value << 1 | data[position >> 3] >> 7 - (position & 7) & 1
        return value

    read(4)  # a profile, and whether it is a still picture
    if read(1):  # a reduced header
        read(5)
    else:
        if read(1):
            raise ImageError("decode", "AV1 with timing information")
        has_delay = read(1)
        for _ in range(read(5) + 1):
            read(12)
            if read(5) > 7:
                read(1)
            if has_delay and read(1):
                read(4)
    width_bits, height_bits = read(4) + 1, read(4) + 1
    return read(width_bits) + 1, read(height_bits) + 1
