"""What an image must be before it is decoded: safe and complete.

Decoders differ in what they forgive: OpenCV returns grey below a truncation, Pillow ignores corrupt
entropy data, libjpeg-turbo warns. A speed comparison needs one answer for all, so every file is
validated before any decoder sees it: first by its header (format, size, scans, segments: bounded
time and memory), then by one strict libjpeg-turbo pass at 1/8 scale, which decodes all the
entropy-coded data and treats every warning as damage, and by Pillow, which must identify it too.
Whatever a library raises about a file is that file's failure.
"""

import hashlib
import io
import struct
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

import simplejpeg
from PIL import Image as PillowImage

from wallclock import jpeg
from wallclock.errors import ImageError, reason_of
from wallclock.formats import sniff
from wallclock.recipe import Limits
from wallclock.stages.augment import Augmentation
from wallclock.stages.decode import DECODERS

#: SOF markers that every decoder reads: baseline, extended, progressive, and arithmetic coding.
_READABLE_SOF = {0xC0: "baseline", 0xC1: "extended", 0xC2: "progressive"}
_READABLE_SOF |= {0xC9: "arithmetic", 0xCA: "arithmetic"}
#: Sampling factors of Y, Cb and Cr in a frame header.
_SAMPLINGS: dict[tuple[int, ...], str] = {
    (luma, 0x11, 0x11): name
    for luma, name in {
        0x11: "4:4:4",
        0x21: "4:2:2",
        0x22: "4:2:0",
        0x12: "4:4:0",
        0x41: "4:1:1",
    }.items()
}
#: Bytes between two segments of a header; encoders write none, or a few to align.
_MAX_FILL_BYTES = 65_536
#: Larger images are decoded one at a time in a process: 100 megapixels take Pillow 1.5 GB.
LARGE_PIXELS = 20_000_000
#: hashlib: HASHLIB_GIL_MINSIZE; and bytes of a small file, tens of microseconds of hashing.
_HASHED_AT_ONCE, _SMALL = 2047, 1 << 15
_one_large = threading.Lock()


class Image(Protocol):
    """An image before it is decoded, as the stages see it: of a corpus's list, or inspected."""

    @property
    def id(self) -> str:
        """What the user calls it."""

    @property
    def width(self) -> int:
        """In pixels; likewise `height`."""

    @property
    def height(self) -> int:
        """In pixels."""

    @property
    def process(self) -> str:
        """Of a JPEG: baseline, extended, progressive or arithmetic."""

    @property
    def plain_jpeg(self) -> bool:
        """See `is_plain_jpeg`."""

    @property
    def pixels(self) -> int:
        """Width times height."""

    @property
    def current_size(self) -> tuple[int, int] | None:
        """Width and height if they are known to be of the bytes that are decoded."""


def is_plain_jpeg(format: str, components: int, sampling: str) -> bool:
    """Whether every JPEG decoder reads it; Pillow decodes the others in all recipes."""
    return format == "jpeg" and components in (1, 3) and sampling != "other"


#: Bytes by a name that no field has.
Digest: TypeAlias = bytes


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """What a worker learnt of an image: its length, what its header says, perhaps its sha256.

    `components` counts colour channels; `sampling` is a JPEG's chroma subsampling, `other` for one
    that not every decoder reads. `augmentation`: what was drawn for this request of it.
    """

    id: str
    bytes: int
    width: int
    height: int
    sha256: str = ""
    format: str = ""
    process: str = ""
    components: int = 0
    sampling: str = ""
    augmentation: Augmentation | None = None

    def __reduce__(self) -> tuple[type["ImageInfo"], tuple[Any, ...]]:
        # By default a dataclass with slots looks up its fields, in Python and at either end.
        return ImageInfo, _values_of(self)

    @property
    def plain_jpeg(self) -> bool:
        """See `is_plain_jpeg`."""
        return is_plain_jpeg(self.format, self.components, self.sampling)

    @property
    def pixels(self) -> int:
        """Width times height."""
        return self.width * self.height

    @property
    def current_size(self) -> tuple[int, int]:
        """Width and height: they are of these bytes."""
        return self.width, self.height

    @property
    def digest(self) -> Digest:
        """The sha256 of the file as 32 bytes."""
        return Digest.fromhex(self.sha256)


_values_of = attrgetter(*(field.name for field in fields(ImageInfo)))


class _Quiet:
    """Ignores warnings, about damage that the strict pass judges or sizes that our limits judge.

    `catch_warnings` is not safe in threads: the second to leave would restore what the first had
    set. Here the first to enter sets it, the last to leave restores it.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.simplefilter("ignore")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._filters.__exit__(None, None, None)


_quiet = _Quiet()


@dataclass(frozen=True)
class Header:
    """What a file's header declares. `process` and `scans` are for JPEG only."""

    format: str
    width: int
    height: int
    components: int = 3
    process: str = ""
    scans: int = 1
    sampling: str = ""

    @property
    def row_decodable(self) -> bool:
        """Whether it decodes row by row; all but sequential JPEG is decoded in memory at once."""
        sequential = self.process in ("baseline", "extended") and self.scans == 1
        return sequential and self.plain_jpeg

    def scan_is_all(self, components: bytes) -> bool:
        """Whether a first scan of so many components, a byte, is the only one of this frame."""
        return self.process in ("baseline", "extended") and components == bytes((self.components,))

    @property
    def plain_jpeg(self) -> bool:
        """See `is_plain_jpeg`."""
        return is_plain_jpeg(self.format, self.components, self.sampling)


def validate(data: bytes, limits: Limits) -> Header:
    """Return the header of a valid image; raise `ImageError` for a damaged or dangerous one.

    Costs about 3 ms for a 2000 px JPEG. Memory: a 1/64-size image for JPEG, the full one for the
    other formats, never more than `limits.max_pixels` pixels.
    """
    header = read_header(data, limits)
    check_body(data, header)
    return header


def check_body(data: bytes, header: Header) -> None:
    """Decode what follows the header; raise `ImageError` for damage."""
    # libjpeg-turbo's own interface refuses odd subsamplings, which libjpeg decodes.
    odd = header.components == 3 and header.sampling == "other"
    if header.format == "jpeg" and not odd:
        with _failures("JPEG"):
            # The smallest image that libjpeg-turbo makes (1/8): all entropy-coded data is
            # still decoded, and `strict` turns each of its warnings into an error.
            simplejpeg.decode_jpeg(
                data, "GRAY", min_height=1, min_width=1, min_factor=8, strict=True
            )
    with _failures(header.format), PillowImage.open(io.BytesIO(data)) as image:
        if image.size != (header.width, header.height):
            raise ImageError("decode", f"Pillow sees {image.width}x{image.height} pixels")
        if not header.plain_jpeg:
            with _one_large if header.width * header.height > LARGE_PIXELS else nullcontext():
                image.load()


def read_header(data: bytes, limits: Limits, *, to_the_end: bool = True) -> Header:
    """Parse the header without decoding; raise `ImageError` for what limits or decoders refuse.

    With `to_the_end=False` a JPEG whose first scan is its only one, as its header says, is not
    searched behind that: a strict decoder stops there too and refuses one that is cut off.
    """
    if not data:
        raise ImageError("read", "empty file")
    format = sniff(data[:16])
    if format is None:
        start = data[:4].hex(" ")
        raise ImageError("decode", f"not a JPEG, PNG, WebP or GIF file: it starts with {start}")
    if format == "jpeg":
        header = _jpeg_header(data, limits, to_the_end)
    else:
        with _failures(format), PillowImage.open(io.BytesIO(data), formats=[format]) as image:
            header = Header(format, image.width, image.height, len(image.getbands()))
    pixels, longest = header.width * header.height, max(header.width, header.height)
    if pixels <= limits.max_pixels and longest <= limits.max_side and header.scans == 1:
        return header
    claim = f"header claims {header.width}x{header.height} pixels"
    if pixels > limits.max_pixels:
        raise ImageError("decode", f"{claim}, over the limit of {limits.max_pixels:,}")
    if longest > limits.max_side:
        raise ImageError("decode", f"{claim}, over the limit of {limits.max_side:,} a side")
    if pixels * header.scans > limits.max_scan_pixels:
        limit = f"over the limit of {limits.max_scan_pixels:,}"
        raise ImageError("decode", f"{claim} in {header.scans} scans, {limit}")
    return header


def _jpeg_header(data: bytes, limits: Limits, to_the_end: bool) -> Header:
    header: Header | None = None
    first_scan = None if to_the_end else jpeg.first_scan(data, limits.max_segments)
    if first_scan is not None:
        sof, payload, components = first_scan
        header = _frame(payload, sof)
        if header.scan_is_all(components):
            return header
    scans, behind = 0, 2
    for number, (marker, at, start, end) in enumerate(jpeg.segments(data), 1):
        # Pillow reads both segments and fill bytes in a Python loop.
        if number > limits.max_segments:
            limit = f"more JPEG segments than the limit of {limits.max_segments:,}"
            raise ImageError("decode", limit)
        if not scans and at - behind > _MAX_FILL_BYTES:
            raise ImageError("decode", f"junk between JPEG header segments at byte {behind}")
        if marker == jpeg.EOI:
            if header is None or not scans:
                raise ImageError("decode", "JPEG ends before its first scan, or has no frame")
            return replace(header, scans=scans)
        if marker in jpeg.ANY_SOF and not scans:
            header = _frame(data[start + 2 : end], marker)
        elif marker == jpeg.SOS:
            scans += 1
            if scans > limits.max_scans:
                raise ImageError("decode", f"more JPEG scans than the limit of {limits.max_scans}")
            if not to_the_end and header and header.scan_is_all(data[start + 2 : start + 3]):
                return header
        behind = end
    raise ImageError("decode", "truncated JPEG: cut off before its end-of-image marker")


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
    factors = tuple(payload[7 : 6 + 3 * components : 3])
    sampling = "gray" if components == 1 else _SAMPLINGS.get(factors, "other")
    return Header("jpeg", width, height, components, _READABLE_SOF[sof], sampling=sampling)


@contextmanager
def _failures(format: str) -> Iterator[None]:
    """Turn whatever a library raises about an image into its `ImageError`."""
    try:
        with _quiet:
            yield
    except ImageError:
        raise
    except Exception as error:
        raise ImageError("decode", f"damaged {format}: {reason_of(error)}") from error


def sha256(data: bytes) -> bytes:
    """The digest of a file, 32 bytes.

    hashlib releases the GIL for more bytes than `_HASHED_AT_ONCE`. To take it back costs a thread
    more than the hash of a small file does: that one is hashed in pieces, and keeps the GIL.
    """
    if len(data) > _SMALL:
        return hashlib.sha256(data).digest()
    digest, view = hashlib.sha256(), memoryview(data)
    for at in range(0, len(data), _HASHED_AT_ONCE):
        digest.update(view[at : at + _HASHED_AT_ONCE])
    return digest.digest()


@dataclass(frozen=True)
class Inspector:
    """Judges the bytes of one image before they are decoded.

    As `validate` does, up to the body: that is judged by its only decoding, where the decoder is
    strict; for the others by `check_body`, before.

    Args:
        draw: width, height and position to the augmentation of a training image.
        skip: whether there is no need to decode an image, by what is known of it by then.
        hashes: whether its sha256 is noted.
    """

    limits: Limits
    decoder: str
    draw: Callable[[int, int, int], Augmentation] | None = None
    skip: Callable[[ImageInfo], bool] | None = None
    hashes: bool = False
    _strict: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        decoder = DECODERS.get(self.decoder)
        object.__setattr__(self, "_strict", decoder is not None and decoder.strict)

    def __call__(self, position: int, name: str, data: bytes) -> tuple[ImageInfo, bool]:
        """What the bytes of the image with this id are, and whether they are to be decoded.

        Raises:
            ImageError: they are no image, a damaged or a dangerous one.
        """
        header = read_header(data, self.limits, to_the_end=not self._strict)
        info = ImageInfo(
            name,
            len(data),
            header.width,
            header.height,
            sha256(data).hex() if self.hashes else "",
            header.format,
            header.process,
            header.components,
            header.sampling,
            self.draw(header.width, header.height, position) if self.draw else None,
        )
        if self.skip is not None and self.skip(info):
            return info, False
        if header.format == "jpeg" and not (header.plain_jpeg and self._strict):
            check_body(data, header)
        return info, True
