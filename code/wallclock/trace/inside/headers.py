"""Format and stored size of an encoded image, from its first bytes."""

Size = tuple[int, int]

#: First bytes → format. WebP, AVIF and HEIC have theirs after a length.
_MAGICS = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG", "PNG"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"\0\0\0\x0cjP", "JPEG2000"),
    (b"\xff\x4f\xff\x51", "JPEG2000"),
)
_SUFFIXES = {
    **{"jpg": "JPEG", "jpeg": "JPEG", "png": "PNG", "gif": "GIF", "bmp": "BMP", "tif": "TIFF"},
    **{"tiff": "TIFF", "webp": "WEBP", "avif": "AVIF", "jp2": "JPEG2000"},
}
#: Start-of-frame markers with these low bits are of progressive JPEGs.
_PROGRESSIVE = (0xC2, 0xC6, 0xCA, 0xCE)
#: Markers of the same range that start no frame.
_NO_FRAME = (0xC4, 0xC8, 0xCC)


def format_of(data: bytes | memoryview) -> str:
    """Name of the format by content, as Pillow spells it; empty for no image."""
    head = bytes(data[:12])
    for magic, name in _MAGICS:
        if head.startswith(magic):
            return name
    if head[:4] == b"RIFF" and head[8:] == b"WEBP":
        return "WEBP"
    if head[4:8] == b"ftyp":
        return {b"avif": "AVIF", b"avis": "AVIF", b"heic": "HEIF", b"mif1": "HEIF"}.get(
            head[8:], ""
        )
    return ""


def format_by_name(path: object) -> str:
    """Name of the format by the file's suffix; empty for another one."""
    return _SUFFIXES.get(str(path).rpartition(".")[2].lower(), "")


def read_header(data: bytes | memoryview) -> tuple[str, Size | None]:
    """Format, `progressive JPEG` included, and width and height; None where they are not found."""
    form = format_of(data)
    if form == "JPEG":
        return _jpeg(data)
    if form == "PNG" and len(data) >= 24:
        return form, (_number(data, 16, 4), _number(data, 20, 4))
    return form, None


def _jpeg(data: bytes | memoryview) -> tuple[str, Size | None]:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            form = "progressive JPEG" if marker in _PROGRESSIVE else "JPEG"
            return form, (_number(data, at + 7, 2), _number(data, at + 5, 2))
        else:
            at += 2 + _number(data, at + 2, 2)
    return "JPEG", None


def _number(data: bytes | memoryview, at: int, length: int) -> int:
    return int.from_bytes(data[at : at + length], "big")
