"""Orientation is what Pillow says it is, read without Pillow; and an image is turned once."""

import io
import struct
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from tests import making
from wallclock.check import ImageInfo, Inspector
from wallclock.orientation import orient, orientation_of
from wallclock.recipe import Limits
from wallclock.stages import decode

PLAIN = making.jpeg()
EXIF, XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"
VALUES = range(1, 9)


def app1(payload: bytes) -> bytes:
    return making.segment(0xE1, payload)


def exif_of(*entries: tuple[int, int, int, bytes], order: str = "<", magic: int = 42) -> bytes:
    """The TIFF of an EXIF segment: entries of tag, type, count and four bytes."""
    head = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", magic, 8)
    body = b"".join(struct.pack(f"{order}HHI4s", *entry) for entry in entries)
    return head + struct.pack(f"{order}H", len(entries)) + body + bytes(4)


def with_segments(*payloads: bytes) -> bytes:
    return PLAIN[:2] + b"".join(map(app1, payloads)) + PLAIN[2:]


def pillows(data: bytes) -> int:
    """What `ImageOps.exif_transpose` turns by; 1 where it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(data)) as image:
            try:
                value = image.getexif().get(0x0112)
            except (SyntaxError, struct.error):
                value = None
    return next((n for n in VALUES if n == value), 1)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("value", range(11))
def test_every_value_in_either_byte_order(value: int, order: str) -> None:
    entry = (0x0112, 3, 1, struct.pack(f"{order}HH", value, 0))
    data = with_segments(EXIF + exif_of(entry, order=order))
    assert orientation_of(data) == pillows(data) == (value if value in VALUES else 1)


SIX = (0x0112, 3, 1, b"\6\0\0\0")
THREE = (0x0112, 3, 1, b"\3\0\0\0")
ODD = {
    "none": with_segments(),
    "long": with_segments(EXIF + exif_of((0x0112, 4, 1, b"\6\0\0\0"))),
    "byte": with_segments(EXIF + exif_of((0x0112, 1, 1, b"\6\0\0\0"))),
    "float": with_segments(EXIF + exif_of((0x0112, 11, 1, struct.pack("<f", 6.0)))),
    "rational": with_segments(EXIF + exif_of((0x0112, 5, 1, b"\x1a\0\0\0")) + b"\6\0\0\0\1\0\0\0"),
    "over zero": with_segments(EXIF + exif_of((0x0112, 5, 1, b"\x1a\0\0\0")) + b"\6\0\0\0" * 2),
    "two values": with_segments(EXIF + exif_of((0x0112, 3, 2, b"\6\0\3\0"))),
    "no values": with_segments(EXIF + exif_of((0x0112, 3, 0, b"\6\0\0\0"), THREE)),
    "unknown type": with_segments(EXIF + exif_of((0x0112, 99, 1, b"\6\0\0\0"), THREE)),
    "twice": with_segments(EXIF + exif_of(SIX, THREE)),
    "behind a make outside": with_segments(EXIF + exif_of((0x010F, 2, 9, b"\xf0\0\0\0"), SIX)),
    "behind a huge make": with_segments(EXIF + exif_of((0x010F, 2, 1 << 30, b"\1\0\0\0"), SIX)),
    "II 00 2A": with_segments(EXIF + b"II\0\x2a" + exif_of(SIX)[4:]),
    "MM 2B": with_segments(EXIF + exif_of((0x0112, 3, 1, b"\0\6\0\0"), order=">", magic=43)),
    "II 2B": with_segments(EXIF + exif_of(SIX, magic=43)),
    "no TIFF": with_segments(EXIF + b"XX" + exif_of(SIX)[2:]),
    "short": with_segments(EXIF + b"II*\0\x08"),
    "empty": with_segments(EXIF),
    "twice its name": with_segments(EXIF + EXIF + exif_of(SIX)),
    "in two segments": with_segments(EXIF + exif_of(SIX)[:14], EXIF + exif_of(SIX)[14:]),
    "two of them": with_segments(EXIF + exif_of(SIX), EXIF + exif_of(THREE)),
    "XMP": with_segments(XMP + b'<x tiff:Orientation="6"/>'),
    "XMP element": with_segments(XMP + b"<tiff:Orientation>6</tiff:Orientation>"),
    "XMP of nine": with_segments(XMP + b'tiff:Orientation="9"'),
    "two XMP": with_segments(XMP + b'tiff:Orientation="6"', XMP + b'tiff:Orientation="3"'),
    "XMP and EXIF": with_segments(XMP + b'tiff:Orientation="6"', EXIF + exif_of(THREE)),
    "XMP and EXIF without": with_segments(EXIF + exif_of(), XMP + b'tiff:Orientation="6"'),
    "XMP and empty EXIF": with_segments(EXIF, XMP + b'tiff:Orientation="6"'),
    "XMP and no TIFF": with_segments(EXIF + b"nonsense", XMP + b'tiff:Orientation="6"'),
    "fill bytes": PLAIN[:2] + b"\xff\xff" + app1(EXIF + exif_of(SIX)) + PLAIN[2:],
    "junk": PLAIN[:2] + app1(b"other") + b"\0\0" + app1(EXIF + exif_of(SIX)) + PLAIN[2:],
    "behind the scan": PLAIN[:-2] + app1(EXIF + exif_of(SIX)) + PLAIN[-2:],
}


@pytest.mark.parametrize("name", ODD)
def test_odd_segments_as_by_pillow(name: str) -> None:
    assert orientation_of(ODD[name]) == pillows(ODD[name])


def test_the_odd_segments_tell_readers_apart() -> None:
    assert {1, 3, 6} == {orientation_of(data) for data in ODD.values()}


@settings(max_examples=400)
@given(
    st.sampled_from(sorted(ODD)),
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 255)), max_size=6),
)
def test_changed_bytes_as_by_pillow(name: str, edits: list[tuple[int, int]]) -> None:
    data = bytearray(ODD[name])
    for at, value in edits:
        data[at + 2] = value
    try:
        expected = pillows(bytes(data))
    except (OSError, SyntaxError, ValueError, struct.error, IndexError):
        # Pillow opens no such file: anything but an exception will do.
        assert orientation_of(bytes(data)) in VALUES
    else:
        assert orientation_of(bytes(data)) == expected


@given(st.binary(max_size=300), st.integers(0, 300))
def test_it_never_raises(junk: bytes, cut: int) -> None:
    for data in (junk, b"\xff\xd8" + junk, with_segments(EXIF + junk), ODD["twice"][:cut]):
        assert orientation_of(data) in VALUES


def test_ten_thousand_segments_take_linear_time() -> None:
    """In quadratic time, pytest's time limit would end this."""
    many = with_segments(*[EXIF + bytes(60_000)] * 2_000)
    assert orientation_of(many) == 1


def inspected(data: bytes, rotate: bool = True) -> ImageInfo:
    return Inspector(Limits(), "simplejpeg", rotate=rotate)(0, "x", data)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {}),
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("AVIF", {}),
    ],
)
def test_every_format_is_turned_once(kind: str, options: dict[str, Any], value: int) -> None:
    data = making.encode(making.picture(), kind, exif=making.exif(value), **options)
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    info = inspected(data)
    assert (info.orientation, info.width, info.height) == (value, 64, 48)
    stored = decode.make_other("pil")(data)
    assert stored.shape == (48, 64, 3)
    np.testing.assert_array_equal(orient(stored, info.orientation), expected)
    assert inspected(data, rotate=False).orientation == 1


def test_a_png_whose_exif_lies_behind_its_pixels() -> None:
    data = making.encode(making.picture(), "PNG", exif=making.exif(6))
    at = data.index(b"eXIf") - 4
    size = 12 + int.from_bytes(data[at : at + 4], "big")
    chunk, rest = data[at : at + size], data[:at] + data[at + size :]
    moved = rest[:-12] + chunk + rest[-12:]
    assert (inspected(data).orientation, inspected(moved).orientation) == (6, 6)
    assert inspected(rest).orientation == 1
