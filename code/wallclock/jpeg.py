"""The markers of a JPEG file, found without decoding it, and what its header declares."""

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

from wallclock.errors import ImageError
from wallclock.formats import Header
from wallclock.recipe import Limits

T = TypeVar("T")
#: The next marker in or behind entropy-coded data; FF 00 is a data byte, FF D0 to D7 only restart.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)
#: Markers with a length and a payload.
_WITH_LENGTH = frozenset(range(0x02, 0xFF)) - frozenset(range(0xD0, 0xDA))
SOS = 0xDA
EOI = 0xD9
ANY_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
#: SOF markers that every decoder reads: baseline, extended, progressive, and arithmetic coding.
_READABLE_SOF = {0xC0: "baseline", 0xC1: "extended", 0xC2: "progressive"}
_READABLE_SOF |= {0xC9: "arithmetic", 0xCA: "arithmetic"}
#: Sampling factors of Y in a frame header, where those of Cb and Cr are 1.
_SAMPLINGS = {0x11: "4:4:4", 0x21: "4:2:2", 0x22: "4:2:0", 0x12: "4:4:0", 0x41: "4:1:1"}
_METADATA = frozenset((*range(0xE0, 0xF0), 0xFE))
#: Of them, those that say how to convert colours: what libjpeg wants them to begin with, and their
#: least bytes.
_COLOURS = {0xE0: (b"JFIF\0", 14), 0xEE: (b"Adobe", 12)}
#: Bytes between two segments of a header; encoders write none, or a few to align.
_MAX_FILL_BYTES = 65_536


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


def bare(data: bytes) -> bytes:
    """The JPEG without EXIF, XMP, profiles, comments and stray bytes; its pixels are the same."""
    kept = [data[:2]]
    for marker, at, start, end in segments(data):
        if marker == SOS:
            kept.append(data[at:])
            break
        body = data[start + 2 : end]
        name, least = _COLOURS.get(marker, (b"", 0))
        if marker not in _METADATA or (name and body.startswith(name) and len(body) >= least):
            # libjpeg takes every version of JFIF for 1, with a warning.
            version = b"\1" if marker == 0xE0 else body[len(name) : len(name) + 1]
            kept += data[at : start + 2], name, version, body[len(name) + 1 :]
    return b"".join(kept)


def read_bare(
    read: Callable[..., T],
    data: bytes,
    *args: Any,
    strip: Callable[[bytes], bytes] = bare,
    **options: Any,
) -> T:
    """`read` a file; where it raises, without its metadata, of which nothing is applied here."""
    try:
        return read(data, *args, **options)
    except Exception:
        stripped = strip(data)
        if stripped == data:
            raise
        return read(stripped, *args, **options)


def read_header(data: bytes, limits: Limits, *, to_the_end: bool = True) -> Header:
    """Parse the header without decoding. Raises `ImageError` for what limits or decoders refuse.

    With `to_the_end=False` a file whose first scan is its only one is not searched behind that.
    """
    header: Header | None = None
    scans, passes, behind = 0, 0, 2
    for number, (marker, at, start, end) in enumerate(segments(data), 1):
        # Pillow reads both segments and fill bytes in a Python loop.
        if number > limits.max_segments:
            limit = f"more JPEG segments than the limit of {limits.max_segments:,}"
            raise ImageError("decode", limit)
        if not scans and at - behind > _MAX_FILL_BYTES:
            raise ImageError("decode", f"junk between JPEG header segments at byte {behind}")
        if marker == EOI:
            if header is None or not scans:
                raise ImageError("decode", "JPEG ends before its first scan, or has no frame")
            return replace(header, scans=scans, passes=passes)
        if marker in ANY_SOF and not scans:
            header = _frame(data[start + 2 : end], marker)
        elif marker == SOS:
            components = data[start + 2 : start + 3]
            scans, passes = scans + 1, passes + sum(components)
            if scans > limits.max_scans:
                raise ImageError("decode", f"more JPEG scans than the limit of {limits.max_scans}")
            is_sequential = header is not None and header.process in ("baseline", "extended")
            if header and is_sequential and not to_the_end and [*components] == [header.components]:
                return header
        behind = end
    raise ImageError("decode", "truncated JPEG: cut off before its end-of-image marker")


def header_of(found: tuple[int, ...]) -> Header:
    """The header that the native module has `found`, from the width on."""
    width, height, sof, components, luma, _, _, scans, passes = found
    sampling = "gray" if components == 1 else _SAMPLINGS[luma]
    process = _READABLE_SOF[sof]
    return Header("jpeg", width, height, components, process, scans, sampling, passes=passes)


@lru_cache(1024)  # many images of a shop are of one size
def _frame(payload: bytes, sof: int) -> Header:
    if sof not in _READABLE_SOF:
        process = f"JPEG process SOF{sof - 0xC0} (lossless or hierarchical)"
        raise ImageError("decode", f"{process} is read by few decoders")
    if len(payload) < 6:
        raise ImageError("decode", "JPEG frame header is too short")
    precision, height, width, components = struct.unpack(">BHHB", payload[:6])
    if precision != 8:
        raise ImageError("decode", f"{precision}-bit JPEG; the decoders read 8-bit")
    if width == 0 or height == 0:
        raise ImageError("decode", f"JPEG header claims {width}x{height} pixels")
    if components not in (1, 3, 4):
        raise ImageError("decode", f"JPEG with {components} components")
    if len(payload) < 6 + 3 * components:
        raise ImageError("decode", "JPEG frame header is too short")
    luma, *others = payload[7 : 6 + 3 * components : 3]
    sampling = "gray" if components == 1 else "other"
    if {*others} == {0x11} and (components == 3 or luma == 0x11):
        sampling = _SAMPLINGS.get(luma, "other")
    process = _READABLE_SOF[sof]
    return Header("jpeg", width, height, components, process, sampling=sampling, passes=components)
