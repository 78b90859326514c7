"""What an image must be before it is decoded: safe and complete.

Decoders differ in what they forgive: OpenCV returns grey below a truncation, Pillow ignores corrupt
entropy data. So every file is validated first: by its header, in bounded time and memory; then by
one strict pass of libjpeg-turbo at 1/8, and by Pillow, which must identify it, too. Whatever a
library raises about a file is that file's failure.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from functools import cache, lru_cache, partial
from operator import attrgetter
from typing import Any

from wallclock import budget, jpeg
from wallclock.errors import ImageError, reason_of
from wallclock.formats import HEAD_BYTES, KINDS, coding_of, declared_sizes, is_plain_jpeg, sniff
from wallclock.formats import Header as Header
from wallclock.orientation import UPRIGHT, orientation_of
from wallclock.recipe import Limits
from wallclock.stages import decode
from wallclock.stages.augment import Augmentation
from wallclock.stages.decode import DECODERS, Decode, Picture
from wallclock.stages.decode.pil import (
    admit_pixels,
    load_stored,
    open_image,
    quiet,
    stated_orientation,
)

#: Larger images are decoded one at a time in a process: 100 megapixels take Pillow 1.5 GB.
LARGE_PIXELS = 20_000_000
#: hashlib: HASHLIB_GIL_MINSIZE; and bytes of a small file, tens of microseconds of hashing.
_HASHED_AT_ONCE, _SMALL = 2047, 1 << 15
_one_large = threading.Lock()
#: What begins a chunk of a PNG that may have EXIF.
_PNG_EXIF = (b"eXIf", b"Raw profile type exif", b"XML:com.adobe.xmp")


class Image:
    """An image before it is decoded, as the stages see it: of a corpus's list, or inspected.

    `width`, `height`: in pixels, as it is stored, whatever its EXIF `orientation`, which is 1 where
    it was not asked for. `augmentation`: what was drawn for this request of it.
    """

    __slots__ = ()
    id: str
    width: int
    height: int
    format: str
    components: int
    sampling: str
    orientation: int = UPRIGHT
    augmentation: Augmentation | None = None

    @property
    def plain_jpeg(self) -> bool:
        """See `is_plain_jpeg`."""
        return is_plain_jpeg(self.format, self.components, self.sampling)

    @property
    def pixels(self) -> int:
        """Width times height."""
        return self.width * self.height

    @property
    def current_size(self) -> tuple[int, int] | None:
        """Width and height if they are known to be of the bytes that are decoded."""
        return None


@dataclass(frozen=True, slots=True)
class ImageInfo(Image):
    """What a worker learnt of an image: its length, what its header says, perhaps its sha256.

    `components` counts colour channels; `sampling` is a JPEG's chroma subsampling, `other` for one
    that not every decoder reads.
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
    orientation: int = UPRIGHT

    def __reduce__(self) -> tuple[type["ImageInfo"], tuple[Any, ...]]:
        # By default a dataclass with slots looks up its fields, in Python and at either end.
        return ImageInfo, _values_of(self)

    @property
    def current_size(self) -> tuple[int, int]:
        """Width and height: they are of these bytes."""
        return self.width, self.height


_values_of = attrgetter(*(field.name for field in fields(ImageInfo)))


def validate(data: bytes, limits: Limits) -> Header:
    """The header of a valid image; raises `ImageError` for a damaged or dangerous one."""
    header = read_header(data, limits)
    check_body(data, header)
    return header


def check_body(data: bytes, header: Header, *, decodes: bool = True) -> None:
    """Decode what follows the header, or, of what is no plain JPEG, open it; raise `ImageError`."""
    # libjpeg-turbo's own interface refuses subsamplings that libjpeg decodes.
    if header.format == "jpeg" and header.sampling != "other":
        _decode_eighth()(data, 8, (header.width, header.height))
    admit_pixels(header.width * header.height)
    with _failures(header.format), quiet, open_image(data, header.format) as image:
        _compare_sizes(image, header.width, header.height)
        if decodes and not header.plain_jpeg:
            with _one_large if header.width * header.height > LARGE_PIXELS else nullcontext():
                load_stored(image)


@cache
def _decode_eighth() -> Decode:
    """A strict decoder; at 1/8, too, it reads all entropy-coded data."""
    return decode.make("simplejpeg", scales=True, mode="L")


def _compare_sizes(image: Any, width: int, height: int) -> None:
    # Pillow's size of a TIFF that lies on its side is the upright one.
    sizes = {(width, height)} | ({(height, width)} if image.format == "TIFF" else set())
    if image.size not in sizes:
        raise ImageError("decode", f"Pillow sees {image.width}x{image.height} pixels")


def read_header(
    data: bytes, limits: Limits, *, to_the_end: bool = True, rotate: bool = False
) -> Header:
    """Parse the header without decoding; raise `ImageError` for what limits or decoders refuse.

    With `to_the_end=False` a JPEG whose first scan is its only one is not searched behind that: a
    strict decoder refuses one that is cut off. With `rotate` the orientation is read, of other
    formats than JPEG.
    """
    if not data:
        raise ImageError("read", "empty file")
    format = sniff(data[:HEAD_BYTES])
    if format is None:
        start = data[:4].hex(" ")
        raise ImageError("decode", f"not a {KINDS} file: it starts with {start}")
    if format != "jpeg":
        return _other_header(data, format, limits, rotate)
    header = jpeg.read_header(data, limits, to_the_end=to_the_end)
    _check_size(header.width, header.height, limits)
    budget.check_jpeg(header, len(data), limits)
    return header


def _check_size(width: int, height: int, limits: Limits) -> None:
    claim = f"header claims {width}x{height} pixels"
    if width * height > limits.max_pixels:
        raise ImageError("decode", f"{claim}, over the limit of {limits.max_pixels:,}")
    if max(width, height) > limits.max_side:
        raise ImageError("decode", f"{claim}, over the limit of {limits.max_side:,} a side")


def _other_header(data: bytes, format: str, limits: Limits, rotate: bool) -> Header:
    """The header as Pillow reads it, once the sizes that the bytes declare are within limits."""
    size: tuple[int, int] | None = None
    coding = coding_of(format, data)
    for width, height in declared_sizes(format, data, limits.max_segments):
        _check_size(width, height, limits)
        budget.check_image(Header(format, width, height), coding, len(data), limits)
        size = size or (width, height)
    admit_pixels(limits.max_pixels)
    with _failures(format), quiet, open_image(data, format) as image:
        width, height = image.size
        _check_size(width, height, limits)
        if format == "tiff" and size is not None:
            _compare_sizes(image, *size)
            width, height = size
        orientation = _orientation_of(image, data) if rotate else UPRIGHT
        header = Header(format, width, height, len(image.getbands()), orientation=orientation)
    budget.check_image(header, coding, len(data), limits)
    return header


def _orientation_of(image: Any, data: bytes) -> int:
    if image.format == "PNG":  # its EXIF or XMP may lie behind the pixels
        pixels = data.find(b"IDAT")
        if any(data.find(word, pixels) >= 0 for word in _PNG_EXIF):
            with _one_large if image.width * image.height > LARGE_PIXELS else nullcontext():
                image.load()
    return stated_orientation(image)


@contextmanager
def _failures(format: str) -> Iterator[None]:
    """Turn whatever a library raises about an image into its `ImageError`."""
    try:
        yield
    except ImageError:
        raise
    except Exception as error:
        # Damaged, or of a kind that the library does not decode: it does not say which.
        raise ImageError("decode", f"cannot decode this {format}: {reason_of(error)}") from error


def sha256(data: bytes) -> bytes:
    """A digest of 32 bytes; of a small file with the GIL held: to take it back costs more."""
    if len(data) > _SMALL:
        return hashlib.sha256(data).digest()
    digest, view = hashlib.sha256(), memoryview(data)
    for at in range(0, len(data), _HASHED_AT_ONCE):
        digest.update(view[at : at + _HASHED_AT_ONCE])
    return digest.digest()


class Inspector:
    """Judges the bytes of one image before they are decoded.

    Its body is judged by its only decoding, where the decoder is strict; else by `check_body`.
    `draw`: width, height and position to the augmentation of a training image. `hashes`, `rotate`:
    whether its sha256 and its orientation are noted.
    """

    def __init__(
        self,
        limits: Limits,
        decoder: str,
        draw: Callable[[int, int, int], Augmentation] | None = None,
        *,
        hashes: bool = False,
        rotate: bool = False,
    ) -> None:
        self._limits, self._draw, self._hashes, self._rotate = limits, draw, hashes, rotate
        self._strict = decoder in DECODERS and DECODERS[decoder].strict
        self._header = lru_cache(1024)(partial(_header_within, limits))
        admit_pixels(limits.max_pixels)

    def __call__(self, position: int, name: str, data: bytes | Picture) -> ImageInfo:
        """What the bytes of the image with this id are. Raises ImageError: no image, or damaged."""
        if isinstance(data, Picture):
            with _failures("image"):
                width, height = data.size()
                _check_size(width, height, self._limits)
                orientation = data.orientation() if self._rotate else UPRIGHT
            return self._note(position, name, 0, Header("", width, height), orientation, "")
        header = read_header(data, self._limits, to_the_end=not self._strict, rotate=self._rotate)
        orientation = header.orientation
        if self._rotate and header.format == "jpeg":
            orientation = orientation_of(data)
        digest = sha256(data).hex() if self._hashes else ""
        if header.format == "jpeg" and not (header.plain_jpeg and self._strict):
            # What is not plain is decoded by Pillow afterwards, which would then do it twice.
            check_body(data, header, decodes=False)
        return self._note(position, name, len(data), header, orientation, digest)

    def of_header(
        self,
        position: int,
        name: str,
        found: tuple[int, ...],
        read: Callable[[int], bytes],
        number: int,
    ) -> ImageInfo | None:
        """The same of an image whose header the native module has parsed (`_native.Header`).

        None: its bytes, `read(number)`, are to be judged: it is over a limit, or nearly, or a PNG
        that may have EXIF.
        """
        n_bytes, orientation = found[1], found[8]
        header = self._header(found[3:], n_bytes.bit_length())
        if header is None or (self._rotate and not orientation and header.format == "png"):
            return None
        if self._rotate and not orientation:
            orientation = orientation_of(read(number))
        digest = sha256(read(number)).hex() if self._hashes else ""
        return self._note(position, name, n_bytes, header, orientation or UPRIGHT, digest)

    def _note(
        self, position: int, name: str, n_bytes: int, header: Header, orientation: int, digest: str
    ) -> ImageInfo:
        width, height = header.width, header.height
        drawn = self._draw(width, height, position) if self._draw else None
        coding = header.format, header.process, header.components, header.sampling
        return ImageInfo(name, n_bytes, width, height, digest, *coding, drawn, orientation)


def _header_within(limits: Limits, found: tuple[int, ...], bits: int) -> Header | None:
    """The header of a file whose length has so many bits; None: it may be over a limit."""
    width, height, sof, channels, _, _, segments, scans, _ = found
    if segments > limits.max_segments or scans > limits.max_scans:
        return None
    header = jpeg.header_of(found) if sof else Header("png", width, height, channels)
    try:
        _check_size(width, height, limits)
        if sof:
            budget.check_jpeg(header, (1 << bits) - 1, limits)
        else:
            budget.check_image(header, ("png", channels), (1 << bits) - 1, limits)
    except ImageError:
        return None
    return header
