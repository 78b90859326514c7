"""Image formats by their first bytes, and the sizes that their headers declare.

Names and extensions are not trusted. Sizes are read from the bytes, because some libraries take
the memory of an image when they open it, before anyone can ask them for its size.
"""

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from wallclock import isobmff, tiff
from wallclock.errors import ImageError
from wallclock.isobmff import Size

#: What is read, in words.
KINDS = "JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF, JPEG 2000 or HEIC"
#: As many bytes of a file as `sniff` looks at: the brands of AVIF and HEIC follow one another.
HEAD_BYTES = 128
#: Where a PNG has its colour type, behind the bits of a sample; channels of each type.
_PNG_COLOUR, _CHANNELS = 25, {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# A text may begin with BM: a bitmap also has a header of one of these sizes.
_MAGIC = re.compile(
    rb"(?P<jpeg>\xff\xd8\xff)|(?P<png>\x89PNG\r\n\x1a\n)|(?P<gif>GIF8[79]a)|(?P<webp>RIFF.{4}WEBP)"
    rb"|(?P<bmp>BM.{12}[\x0c\x10\x28\x34\x38\x40\x6c\x7c]\0\0\0)"
    rb"|(?P<tiff>II\*\0|MM\0\*|II\+\0\x08\0\0\0|MM\0\+\0\x08\0\0)"
    rb"|(?P<jp2>\xff\x4f\xff\x51|\0\0\0\x0cjP  \r\n\x87\n)",
    re.DOTALL,
)
#: Brands of ISO-BMFF files: of AV1 pictures, of HEVC pictures, and of either.
_AVIF = frozenset({b"avif", b"avis"})
_HEIC = frozenset({b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs"})
_HEIF = frozenset({b"mif1", b"msf1"})


def sniff(head: bytes) -> str | None:
    """jpeg, png, gif, webp, bmp, tiff, jp2, avif or heic, by the first `HEAD_BYTES`; or None."""
    match = _MAGIC.match(head)
    if match or head[4:8] != b"ftyp":
        return match.lastgroup if match else None
    head, major = head[:HEAD_BYTES], head[8:12]
    end = min(int.from_bytes(head[:4], "big"), len(head))
    # The major brand decides where the others name both.
    for brands in ({major}, {head[at : at + 4] for at in range(16, end - 3, 4)}):
        if brands & _AVIF:
            return "avif"
        if brands & _HEIC:
            return "heic"
    return "heic" if major in _HEIF else None


def is_plain_jpeg(format: str, components: int, sampling: str) -> bool:
    """Whether every JPEG decoder reads it; Pillow decodes the others in all recipes."""
    return format == "jpeg" and components in (1, 3) and sampling != "other"


@dataclass(frozen=True)
class Header:
    """What a file's header declares. `process`, `scans` and `passes` are for JPEG only.

    `orientation`: of another format than JPEG, where it was asked for. `passes`: the components of
    its scans, added up over all scans.
    """

    format: str
    width: int
    height: int
    components: int = 3
    process: str = ""
    scans: int = 1
    sampling: str = ""
    orientation: int = 1
    passes: int = field(default=1, compare=False)

    @property
    def plain_jpeg(self) -> bool:
        """See `is_plain_jpeg`."""
        return is_plain_jpeg(self.format, self.components, self.sampling)


def declared_sizes(format: str, data: bytes, most: int = 10_000) -> Iterator[Size]:
    """Each width and height for which opening or decoding the file would take memory.

    Of a GIF the screen and the first frame; of a TIFF the first page and its tiles; of AVIF and
    HEIC every item, of AVIF its AV1 frames as well, of HEIC its grids. None for a JPEG, and where
    the header is cut off. Raises ImageError: it has more than `most` parts, an AVIF or HEIC is cut
    off within them, or no library reads it.
    """
    find = _SIZES.get(format)
    if find is None:
        return
    try:
        yield from find(data, most)
    except (struct.error, IndexError) as error:  # cut off
        if format in ("avif", "heic"):  # whose decoders may be content with what is left
            raise ImageError("decode", f"{format} that ends within its description") from error


def coding_of(format: str, data: bytes) -> tuple[str, float]:
    """What decoding costs by: the format, or `bmp rle`; and the bytes of a PNG's pixel, else 0."""
    if format == "png" and len(data) > _PNG_COLOUR:
        return format, data[_PNG_COLOUR - 1] * _CHANNELS.get(data[_PNG_COLOUR], 1) / 8
    is_run_length = format == "bmp" and data[14:15] != b"\x0c" and data[30:31] in (b"\1", b"\2")
    return "bmp rle" if is_run_length else format, 0


def _png(data: bytes, most: int) -> Iterator[Size]:
    # Pillow reads chunks in a Python loop; libpng writes pixels in chunks of 8 KB.
    most += len(data) // 1024
    at = 8
    for _ in range(most):
        size, kind = struct.unpack_from(">I4s", data, at) if at + 8 <= len(data) else (0, b"IEND")
        if kind == b"IEND":
            break
        at += 12 + size
    else:
        raise ImageError("decode", f"more PNG chunks than the limit of {most:,}")
    if data[12:16] == b"IHDR":
        yield struct.unpack_from(">II", data, 16)


def _webp(data: bytes, most: int) -> Iterator[Size]:
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = data[24:27], data[27:30]
        yield int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
    elif kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        yield (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        yield width & 0x3FFF, height & 0x3FFF


def webp_image_end(data: bytes) -> int:
    """Where the only image of a WebP ends; 0: it is an animation, cut off, or unusual."""
    at = 12
    for _ in range(8):  # features, a profile, alpha, the image, and some others
        kind, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8 + size + size % 2
        if kind in (b"VP8 ", b"VP8L"):
            return at if at <= len(data) else 0
        if kind == b"ANIM":
            return 0
    return 0


def _bmp(data: bytes, most: int) -> Iterator[Size]:
    (header,) = struct.unpack_from("<I", data, 14)
    if header == 12:
        yield struct.unpack_from("<HH", data, 18)
    else:
        # A negative height: rows from top to bottom.
        width, height = struct.unpack_from("<Ii", data, 18)
        yield width, abs(height)


def _gif(data: bytes, most: int) -> Iterator[Size]:
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    yield width, height
    at = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    parts = 0
    while parts <= most:
        kind, parts = data[at], parts + 1
        at += 1
        if kind == 0x3B:  # the end
            return
        if kind == 0x2C:  # a frame
            left, top, width, height = struct.unpack_from("<4H", data, at)
            yield left + width, top + height
            return
        if kind == 0x21:  # an extension: its label, blocks, an empty block
            is_comment, first = data[at] == 0xFE, data[at + 1]
            at += 2 + first
            if is_comment and not first:
                continue
            while data[at] and parts <= most:
                at, parts = at + 1 + data[at], parts + 1
            at += 1
    raise ImageError("decode", f"more GIF blocks than the limit of {most:,} before its first frame")


def _tiff(data: bytes, most: int) -> Iterator[Size]:
    if data[:4] == b"MM\0+":
        raise ImageError("decode", "Pillow reads no big-endian BigTIFF; convert it to TIFF")
    wanted = (tiff.WIDTH, tiff.LENGTH, tiff.TILE_WIDTH, tiff.TILE_LENGTH)
    about = (tiff.NEW_SUBFILE_TYPE, tiff.DNG_VERSION)
    tags = tiff.read_tags(data, (*wanted, *about), most)
    if tags is None:
        return
    # Of a camera's raw file the first page is a thumbnail, and not what the user means.
    subfile = tags.get(tiff.NEW_SUBFILE_TYPE)
    is_preview = isinstance(subfile, int) and subfile & 1
    if is_preview or tiff.DNG_VERSION in tags or data[8:10] == b"CR":
        reason = "a camera's raw file, or a TIFF that begins with a preview; convert it to TIFF"
        raise ImageError("decode", reason)
    for pair in (wanted[:2], wanted[2:]):
        width, length = tags.get(pair[0]), tags.get(pair[1])
        if isinstance(width, int) and isinstance(length, int):
            yield width, length


def _jp2(data: bytes, most: int) -> Iterator[Size]:
    if data[:1] == b"\xff":
        yield _codestream(data, 0, most)
        return
    for start, _ in isobmff.spans(data, most, b"jp2c"):
        yield _codestream(data, start, most)
    for start, _ in isobmff.spans(data, most, b"jp2h", b"ihdr"):
        height, width = struct.unpack_from(">II", data, start)
        yield width, height


def _codestream(data: bytes, at: int, most: int) -> Size:
    right, bottom, left, top, wide, high, _, _, n = struct.unpack_from(">8IH", data, at + 8)
    if n > 4:  # Pillow reads no more
        raise ImageError("decode", f"JPEG 2000 with {n} components")
    # OpenJPEG takes kilobytes for each tile before it decodes any.
    if wide and high and -(-right // wide) * -(-bottom // high) > most:
        raise ImageError("decode", f"more JPEG 2000 tiles than the limit of {most:,}")
    return right - left, bottom - top


_SIZES: dict[str, Callable[[bytes, int], Iterator[Size]]] = {
    "png": _png,
    "webp": _webp,
    "gif": _gif,
    "bmp": _bmp,
    "tiff": _tiff,
    "jp2": _jp2,
    "avif": isobmff.avif_sizes,
    "heic": isobmff.heic_sizes,
}
