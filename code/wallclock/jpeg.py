"""The markers of a JPEG file, found without decoding it."""

import re
from collections.abc import Iterator

#: The next marker in or behind entropy-coded data; FF 00 is a data byte, FF D0 to D7 only restart.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)
#: Markers without a length and a payload.
_STANDALONE = frozenset({0x01, *range(0xD0, 0xDA)})
SOF_PROGRESSIVE, SOS, EOI = 0xC2, 0xDA, 0xD9


def segments(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Walk the segments as a decoder does, behind the first scan too.

    Yields marker, the position of its FF, and where its payload starts (the two bytes of the length
    included) and ends. A payload may hold any bytes: a thumbnail, or the decoy of a marker. Time is
    linear in the bytes walked.
    """
    position = 2
    while match := _NEXT_MARKER.search(data, position):
        at, position = match.span()
        start, marker = position, data[position - 1]
        if marker not in _STANDALONE:
            position += max(2, int.from_bytes(data[position : position + 2], "big"))
        yield marker, at, start, position
