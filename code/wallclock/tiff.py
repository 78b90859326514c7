"""The tags of a TIFF's first directory, which is also what an EXIF segment holds.

Which entries count, and where reading ends, is as in Pillow, with whose pixels ours are
compared. Nothing is decoded, and no more memory is taken than the values need.
"""

import struct
from collections.abc import Container

from wallclock.errors import ImageError

NEW_SUBFILE_TYPE, WIDTH, LENGTH = 254, 256, 257
ORIENTATION, TILE_WIDTH, TILE_LENGTH, DNG_VERSION = 274, 322, 323, 50706
#: Type → bytes of one value, and its format; bytes and text have none.
_TYPES = {1: (1, ""), 2: (1, ""), 3: (2, "H"), 4: (4, "I"), 5: (8, "II"), 6: (1, "b"), 7: (1, "")}
_TYPES |= {8: (2, "h"), 9: (4, "i"), 10: (8, "ii"), 11: (4, "f"), 12: (8, "d"), 13: (4, "I")}
_TYPES |= {16: (8, "Q")}
#: The last three Pillow takes for such as the first two.
_CLASSIC = (b"II*\0", b"MM\0*", b"II\0*", b"MM*\0", b"MM\0+")
#: Eight bytes an offset. Pillow reads none of the other byte order.
_BIG = b"II+\0"
#: Of a tag: each row of four planes may be a strip. Pillow makes an object of each value.
_MOST_VALUES = 4 * 65_535


def read_tags(
    data: bytes, wanted: Container[int], most: int, *, exif: bool = False
) -> dict[int, float | None] | None:
    """The first number of each wanted tag that the first directory has; None: it is no TIFF.

    Entries behind one whose value lies outside the data are not read, nor are more than `most`.
    `exif`: the data is of an EXIF segment, in which Pillow reads no BigTIFF.

    Raises ImageError: the directory claims more than `most` entries, or a tag of a TIFF more than
    `_MOST_VALUES` values.
    """
    head = data[:4]
    big = head == _BIG and not exif
    if not (big or head in _CLASSIC) or len(data) < (16 if big else 8):
        return None
    order = "<" if head[:2] == b"II" else ">"
    word, count_of = ("Q", "Q") if big else ("I", "H")
    (offset,) = struct.unpack_from(f"{order}{word}", data, 8 if big else 4)
    entry = struct.Struct(f"{order}HHQ8s" if big else f"{order}HHI4s")
    values: dict[int, float | None] = {}
    at = offset + struct.calcsize(f"={count_of}")
    if at > len(data):
        return values
    (count,) = struct.unpack_from(f"{order}{count_of}", data, offset)
    if count > most:
        raise ImageError("decode", f"a TIFF with {count:,} tags, over the limit of {most:,}")
    seen: set[int] = set()
    outside = 0
    for start in range(at, min(at + count * entry.size, len(data) - entry.size + 1), entry.size):
        tag, kind, n, field = entry.unpack_from(data, start)
        if tag in seen or kind not in _TYPES or not n:
            continue
        if n > _MOST_VALUES and _TYPES[kind][1] and not exif:
            claim = f"a TIFF with {n:,} values of tag {tag}"
            raise ImageError("decode", f"{claim}, over the limit of {_MOST_VALUES:,}")
        one_size = _TYPES[kind][0]
        size = n * one_size
        if size > len(field):
            (where,) = struct.unpack(f"{order}{word}", field)
            if where >= 1 << 63:
                continue
            outside += size
            if outside > len(data):
                continue
            if where + size > len(data):
                break
            field = data[where : where + one_size]
        seen.add(tag)
        if tag in wanted:
            values[tag] = _number(order, kind, field)
    return values


def _number(order: str, kind: int, field: bytes) -> float | None:
    """The first number of a tag; None: it is text or bytes."""
    layout = _TYPES[kind][1]
    if not layout:
        return None
    numbers = struct.unpack_from(f"{order}{layout}", field)
    if len(numbers) == 1:
        return numbers[0]  # type: ignore[no-any-return]
    return numbers[0] / numbers[1] if numbers[1] else None
