"""EXIF orientation: how an image is stored, and how to turn its pixels upright.

The eight values are those of EXIF's tag 0x0112; 1 is upright. Which value a JPEG has is what
Pillow's `Image.getexif` and `ImageOps.exif_transpose` say, read without Pillow.
"""

import re
from itertools import islice
from typing import TYPE_CHECKING, Any

from wallclock import jpeg, tiff
from wallclock.preprocess import Placement

if TYPE_CHECKING:
    import numpy.typing as npt

UPRIGHT = 1
#: Those at which rows are columns.
_SIDEWAYS = frozenset({5, 6, 7, 8})
#: Of those that are not sideways, and of the others once rows are columns: what is reversed.
_COLUMNS_REVERSED, _ROWS_REVERSED = frozenset({2, 3, 6, 7}), frozenset({3, 4, 7, 8})
_EXIF, _XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"
_IN_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')
_MOST_SEGMENTS = 10_000


def orientation_of(data: bytes) -> int:
    """Return the orientation of a JPEG, 1 to 8; 1 where it has none, or none that can be read.

    Several EXIF segments count as one that was cut up; where EXIF says nothing, XMP does, as in
    Pillow. Where Pillow would raise, the image is taken as it is stored. Never raises.
    """
    payloads = []
    for marker, _, start, end in islice(jpeg.segments(data), _MOST_SEGMENTS):
        if marker == jpeg.SOS:
            break
        if marker == 0xE1:  # APP1
            payloads.append(data[start + 2 : end])
    if not payloads:
        return UPRIGHT
    exif = [payload for payload in payloads if payload.startswith(_EXIF)]
    xmp = [payload for payload in payloads if payload.startswith(_XMP)]
    joined = b"".join(payload[len(_EXIF) :] for payload in exif).removeprefix(_EXIF)
    if joined:
        tags = tiff.read_tags(joined, (tiff.ORIENTATION,), 65_535, exif=True)
        if tags is None:
            return UPRIGHT
        if tiff.ORIENTATION in tags:
            return valid(tags[tiff.ORIENTATION])
    match = _IN_XMP.search(xmp[-1]) if xmp else None
    return valid(int(match[1])) if match else UPRIGHT


def valid(value: object) -> int:
    """The value as an orientation; 1 where it is none, or is missing."""
    return next((number for number in range(1, 9) if number == value), UPRIGHT)


def oriented_size(height: int, width: int, orientation: int) -> tuple[int, int]:
    """Height and width in pixels, once the image is upright."""
    return (width, height) if orientation in _SIDEWAYS else (height, width)


def orient(pixels: "npt.NDArray[Any]", orientation: int) -> "npt.NDArray[Any]":
    """A view of (h, w, c) pixels that is upright, (w, h, c) for 5 to 8; as `exif_transpose`."""
    if orientation in _SIDEWAYS:
        pixels = pixels.swapaxes(0, 1)
    if orientation in _COLUMNS_REVERSED:
        pixels = pixels[:, ::-1]
    if orientation in _ROWS_REVERSED:
        pixels = pixels[::-1]
    return pixels


def stored_placement(placement: Placement, orientation: int) -> Placement:
    """The placement of the stored image whose result, once upright, is that of `placement`."""
    (rows, columns), (top, left) = placement.resized, placement.start
    height, width = placement.window
    if orientation in _ROWS_REVERSED:
        top = rows - top - height
    if orientation in _COLUMNS_REVERSED:
        left = columns - left - width
    if orientation in _SIDEWAYS:
        return Placement((columns, rows), (left, top), (width, height), placement.offset)
    return Placement((rows, columns), (top, left), (height, width), placement.offset)
