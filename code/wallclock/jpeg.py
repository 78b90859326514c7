"""The markers of a JPEG file, found without decoding it."""

import re
from collections.abc import Iterator

#: The next marker in or behind entropy-coded data; FF 00 is a data byte, FF D0 to D7 only restart.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)
#: Markers with a length and a payload.
_WITH_LENGTH = frozenset(range(0x02, 0xFF)) - frozenset(range(0xD0, 0xDA))
SOF_PROGRESSIVE = 0xC2
SOS = 0xDA
EOI = 0xD9
ANY_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def segments(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Walk the segments as a decoder does, behind the first scan too.

    Yields marker, the position of its FF, and where its payload starts (the two bytes of the length
    included) and ends. A payload may hold any bytes: a thumbnail, or the decoy of a marker. Time is
    linear in the bytes walked.
    """
    position, last = 2, len(data) - 2
    while True:
        # In a header a marker follows the segment before it: no need to search.
        if position <= last and data[position] == 0xFF and data[position + 1] in _WITH_LENGTH:
            at = position
        elif match := _NEXT_MARKER.search(data, position):
            at = match.start()
        else:
            return
        marker, start = data[at + 1], at + 2
        position = start
        if marker in _WITH_LENGTH:
            position += max(2, int.from_bytes(data[start : start + 2], "big"))
        yield marker, at, start, position


def first_scan(data: bytes, most: int) -> tuple[int, bytes, bytes] | None:
    """Of a usual header: its SOF marker, that segment's payload, the components of its first scan.

    Usual: at most `most` segments, each right behind the one before it, and one SOF. None for any
    other, which `segments` walks; it takes four times as long.
    """
    position = 2
    sof, payload = 0, b""
    try:
        for _ in range(most):
            marker, start = data[position + 1], position + 2
            if data[position] != 0xFF or marker not in _WITH_LENGTH:
                return None
            position = start + max(2, data[start] << 8 | data[start + 1])
            if marker == SOS:
                return (sof, payload, data[start + 2 : start + 3]) if sof else None
            if marker in ANY_SOF:
                if sof:
                    return None
                sof, payload = marker, data[start + 2 : position]
    except IndexError:
        pass
    return None
