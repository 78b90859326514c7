"""What it costs to decode and to resize an image, relative to how a program does it now.

The constants are fitted to tables of the reference run (data/reference/amd-epyc-2-cores, two AMD
EPYC cores), which a test compares with them: formats.csv, decoder-comparison.csv and
benchmarks/decode.csv; `fitted` has the native module and the resizes. Only ratios of these costs
are used: a trace brings the seconds, on its machine. Other formats count as JPEGs, which decode
faster: a change of them gains more than is predicted.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal, Self

from wallclock.predict.fitted import NATIVE, RESIZE_NS
from wallclock.preprocess import denominator_for

Size = tuple[int, int]
#: The end of an interval: the least that a fix gains, what it is expected to gain, the most.
Bound = Literal["low", "mid", "high"]

#: Nanoseconds of a byte of a JPEG: entropy decoding, at any scale.
NS_PER_BYTE = {"JPEG": 7.0, "progressive JPEG": 22.0}
#: Nanoseconds of a pixel of the file, by the scale's denominator: inverse DCT and colours.
NS_PER_PIXEL = {1: 1.0, 2: 0.5, 4: 0.38, 8: 0.28}
#: The same of a progressive JPEG, whose coefficients are kept until the last scan.
NS_PER_PIXEL_PROGRESSIVE = {1: 3.8, 2: 2.6, 4: 2.4, 8: 2.2}
#: What does the work: Pillow, libjpeg-turbo's own interface with torch's resize, or the loader's C.
Library = Literal["pillow", "turbo", "native"]
#: Nanoseconds that Pillow adds for each pixel that it makes: a row at a time, 4 bytes each.
NS_PILLOW = 2.8
#: Bytes per pixel of a JPEG where a trace does not have them, and of a thumbnail of quality 95.
USUAL_BYTES_PER_PIXEL, _THUMBNAIL_BYTES_PER_PIXEL = 0.2, 0.5
#: Photos and libraries differ from these fractions by about this, relative.
FRACTION_ERROR = 0.25
#: Decoded sides over the target's at least, as the loader has it: of a squash, and of a bilinear
#: resize that keeps the aspect ratio.
MARGIN, SHAPE_MARGIN = 1.25, 2.5


def between(bound: Bound, low: float, high: float) -> float:
    """`low` or `high` for that end of an interval, and halfway for the middle."""
    return {"low": low, "mid": (low + high) / 2, "high": high}[bound]


def is_jpeg(format: str) -> bool:
    """Whether a decoder can make it smaller while it decodes."""
    return format in NS_PER_BYTE


def jpeg_ns(format: str, bytes_per_pixel: float | None, scale: int, library: Library) -> float:
    """Nanoseconds of a pixel of the file at 1/`scale`; `format`: a key of `NS_PER_BYTE`."""
    per_pixel = NS_PER_PIXEL_PROGRESSIVE if format == "progressive JPEG" else NS_PER_PIXEL
    density = USUAL_BYTES_PER_PIXEL if bytes_per_pixel is None else bytes_per_pixel
    turbo = NS_PER_BYTE[format] * density + per_pixel[scale]
    if library == "native":
        return NATIVE[format][scale] * turbo
    return turbo + (NS_PILLOW / scale**2 if library == "pillow" else 0.0)


def resize_ns(library: Library, read_pixels: float, made_pixels: float) -> float:
    """Nanoseconds of one resize."""
    per_read, per_made = RESIZE_NS[library]
    return per_read * read_pixels + per_made * made_pixels


@dataclass(frozen=True)
class Target:
    """What a program resizes its images to; width before height.

    `mode`: `squash`, to exactly this size; `shortest`, that side to the smaller number; `longest`;
    `crop`, of windows cut out before. Without `crop` it is `size` of the whole image.
    """

    size: Size
    mode: str

    @property
    def px(self) -> int:
        """The side that a user thinks of: of both, or of the one that is set."""
        return max(self.size) if self.mode == "longest" else min(self.size)

    @property
    def least(self) -> Size:
        """Width and height to decode to at least, for `Image.draft`."""
        if self.mode == "squash":
            return ceil(MARGIN * self.size[0]), ceil(MARGIN * self.size[1])
        return ceil(SHAPE_MARGIN * self.px), ceil(SHAPE_MARGIN * self.px)

    @property
    def thumbnail_px(self) -> int:
        """The shorter side of a copy to keep in the place of the image."""
        return ceil(MARGIN * (max(self.size) if self.mode == "squash" else self.px))

    def scale(self, source: Size) -> int:
        """8, 4, 2 or 1: the most by which a JPEG of this size may shrink while it is decoded."""
        if self.mode == "crop" or min(source) < 1:
            return 1
        needed: tuple[float, float] = self.least
        if self.mode != "squash":
            side = max(source) if self.mode == "longest" else min(source)
            factor = SHAPE_MARGIN * self.px / side
            needed = factor * source[0], factor * source[1]
        return denominator_for(*source, *needed)


@dataclass(frozen=True)
class Decoded:
    """Images of one kind, as a decoder takes them: `scale` is what it shrinks them by."""

    format: str
    size: Size
    scale: int
    bytes_per_pixel: float | None
    backend: Library
    count: int

    @property
    def ns(self) -> float:
        """Nanoseconds of all of them."""
        format, density = self.format, self.bytes_per_pixel
        if not is_jpeg(format):
            format, density = "JPEG", None
        per_pixel = jpeg_ns(format, density, self.scale, self.backend)
        return self.count * self.size[0] * self.size[1] * per_pixel

    @property
    def n_bytes(self) -> float:
        """Bytes of all of them; where they are not known, as of thumbnails."""
        density = self.bytes_per_pixel or _THUMBNAIL_BYTES_PER_PIXEL
        return self.count * density * self.size[0] * self.size[1]

    def shrunk(self, target: Target) -> Self:
        """JPEGs at the smallest scale that suffices; other formats as they are."""
        if not is_jpeg(self.format):
            return self
        return replace(self, scale=max(self.scale, target.scale(self.size)))

    def as_thumbnails(self, target: Target) -> Self:
        """Small JPEGs in their place."""
        size, density = _small(self.size, target), _THUMBNAIL_BYTES_PER_PIXEL
        return replace(self, format="JPEG", size=size, scale=1, bytes_per_pixel=density)


@dataclass(frozen=True)
class Resized:
    """Images of one kind, as a resize takes them: `size` as decoded by the program now."""

    size: Size
    made: Size
    scale: int
    backend: Library
    count: int

    @property
    def ns(self) -> float:
        """Nanoseconds of all of them."""
        read = self.size[0] * self.size[1] / self.scale**2
        return self.count * resize_ns(self.backend, read, self.made[0] * self.made[1])

    def shrunk(self, target: Target) -> Self:
        """The same of JPEGs that were decoded at the smallest scale that suffices."""
        return replace(self, scale=target.scale(self.size))

    def as_thumbnails(self, target: Target) -> Self:
        """The same of thumbnails."""
        return replace(self, size=_small(self.size, target), scale=1)


def _small(size: Size, target: Target) -> Size:
    shrunk = min(1.0, target.thumbnail_px / min(size))
    return max(1, round(size[0] * shrunk)), max(1, round(size[1] * shrunk))


def fraction(
    now: Iterable[Decoded | Resized], then: Iterable[Decoded | Resized], bound: Bound
) -> float:
    """Time of a decode or of a resize after a change, over that of now."""
    before, after = (sum(kind.ns for kind in kinds) for kinds in (now, then))
    if before <= 0 or before == after:
        return 1.0
    return after / before * between(bound, 1 + FRACTION_ERROR, 1 - FRACTION_ERROR)
