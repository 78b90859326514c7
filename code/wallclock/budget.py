"""What an image costs to decode, by its header: nanoseconds of a core and bytes of memory.

Each cost is linear in the pixels and in the bytes of the file. The coefficients are upper bounds of
what Pillow 13, libjpeg-turbo 3.1, libwebp 1.6, dav1d 1.5 and OpenJPEG 2.5 took on a core of an AMD
EPYC, of files that were made to be expensive: noise, and few bytes that claim many pixels. Memory
includes the file, its copy in a library, and the RGB array.
"""

from typing import NamedTuple

from wallclock.errors import ImageError
from wallclock.formats import Header
from wallclock.recipe import Limits


class _Cost(NamedTuple):
    """Of a pixel and of a byte of the file: nanoseconds; then bytes of memory."""

    ns_per_pixel: float
    ns_per_byte: float
    memory_per_pixel: float
    memory_per_byte: float = 2


#: Pillow's image has 4 bytes a pixel, the array 3.
_COSTS = {
    "png": _Cost(10, 7, 7, 1),
    # Of GIF and BMP Pillow's image is one byte or four; a GIF's background is a second one.
    "gif": _Cost(20, 12, 6),
    "bmp": _Cost(20, 2, 7),
    # A decoder in Python, in which two bytes can be a run of no pixel.
    "bmp rle": _Cost(100, 300, 9),
    # With a strip as large as the image, of eight bytes a pixel, and a copy that is turned.
    "tiff": _Cost(50, 15, 16, 1),
    # libwebp's two canvases and the decoded picture, RGBA all of them, beside Pillow's.
    "webp": _Cost(60, 20, 17),
    "avif": _Cost(60, 90, 18),
    "heic": _Cost(60, 90, 18),
    # 4 bytes a sample of a tile, beside its wavelet coefficients.
    "jp2": _Cost(90, 130, 20),
}
#: Huffman code of a sequential JPEG: 7 to 11 ns a byte; of a progressive, 24, and 0.7 ns for each
#: pixel and scan, of refinements that bring nothing.
_SEQUENTIAL, _PROGRESSIVE = (1, 11), (1, 24)
#: An arithmetic decoder takes up to 110 ns for a byte; and it needs none for decisions that it
#: expects: up to 12 ns for each pixel, scan and component, twelve times as much as Huffman code.
_ARITHMETIC = (12, 110)


def check_image(header: Header, coding: tuple[str, float], n_bytes: int, limits: Limits) -> None:
    """Raise `ImageError` if an image costs more than the limits allow. `coding`: of `coding_of`."""
    name, depth = coding
    cost = _COSTS[name]
    # Decompression and the filters of a PNG: 8 ns for each byte of a pixel.
    work = cost.ns_per_pixel + 8 * depth
    _check(header, n_bytes, limits, cost._replace(ns_per_pixel=work))


def check_jpeg(header: Header, n_bytes: int, limits: Limits) -> None:
    """Raise `ImageError` if a JPEG costs more than the limits allow."""
    ns_per_pass, ns_per_byte = _SEQUENTIAL
    if header.process == "arithmetic":
        ns_per_pass, ns_per_byte = _ARITHMETIC
    elif header.scans > 1:
        ns_per_pass, ns_per_byte = _PROGRESSIVE
    ns_per_pixel, memory = ns_per_pass * header.passes, 3
    if header.scans > 1:
        # Coefficients of two bytes each.
        memory += 2 * header.components
    if not header.plain_jpeg:
        # A strict pass, then Pillow's, into its own image.
        ns_per_pixel, ns_per_byte, memory = 2 * ns_per_pixel + 10, 2 * ns_per_byte, memory + 4
    _check(header, n_bytes, limits, _Cost(ns_per_pixel, ns_per_byte, memory, 1))


def _check(header: Header, n_bytes: int, limits: Limits, cost: _Cost) -> None:
    pixels = header.width * header.height
    work = cost.ns_per_pixel * pixels + cost.ns_per_byte * n_bytes
    memory = cost.memory_per_pixel * pixels + cost.memory_per_byte * n_bytes
    if work > limits.max_work:
        excess = f"{work / 1e9:.3g} s of work, over the limit of {limits.max_work / 1e9:.3g}"
    elif memory > limits.max_memory:
        most = f"{limits.max_memory / 1e6:,.0f}"
        excess = f"{memory / 1e6:,.0f} MB of memory, over the limit of {most}"
    else:
        return
    claim = f"header claims {header.width}x{header.height} pixels"
    if header.scans > 1:
        claim += f" in {header.scans} scans"
    raise ImageError("decode", f"{claim}: {excess}")
