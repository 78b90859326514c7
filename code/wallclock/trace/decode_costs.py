"""What an image costs to decode and to resize, relative to how the program does it now.

The constants are fitted to tables of the reference run (data/reference/amd-epyc-2-cores, two AMD
EPYC cores), which a test compares with them:

- formats.csv: JPEG of three qualities at full and at 1/8 size, baseline and progressive, and the
  other formats, by Pillow, OpenCV and libjpeg-turbo's own interface;
- decoder-comparison.csv: Pillow over libjpeg-turbo's own interface, which is a cost per pixel;
- benchmarks/decode.csv: the scales between, and the resize by Pillow and by torch.

Only ratios of these costs are used: a trace brings the seconds, on its machine.
"""

from collections.abc import Mapping

#: Nanoseconds of a byte of a JPEG: entropy decoding, at any scale.
NS_PER_BYTE = {"JPEG": 7.0, "progressive JPEG": 22.0}
#: Nanoseconds of a pixel of the file, by the scale's denominator: inverse DCT and colours.
NS_PER_PIXEL = {1: 1.0, 2: 0.5, 4: 0.38, 8: 0.28}
#: The same of a progressive JPEG, whose coefficients are kept until the last scan.
NS_PER_PIXEL_PROGRESSIVE = {1: 3.8, 2: 2.6, 4: 2.4, 8: 2.2}
#: Nanoseconds that Pillow adds for each pixel that it makes: a row at a time, 4 bytes each.
NS_PILLOW = 2.8
#: Bytes per pixel of a JPEG where a trace does not have them.
USUAL_BYTES_PER_PIXEL = 0.2
#: Of these fractions, relative: photos and libraries differ by about this from the fit.
FRACTION_ERROR = 0.25

#: Times as long as the same picture as a baseline JPEG: least and most of the decoders measured.
SLOWER_THAN_JPEG: Mapping[str, tuple[float, float]] = {
    "progressive JPEG": (1.3, 3.7),
    "PNG": (3.2, 6.5),
    "WEBP": (1.5, 3.3),
    "AVIF": (1.7, 10.4),
}

#: Nanoseconds of a pixel that a bilinear resize reads, and of one that it makes.
RESIZE_NS = {"pillow": (3.2, 7.8), "torch": (0.36, 2.0)}


def jpeg_ns(format: str, bytes_per_pixel: float | None, scale: int, *, with_pillow: bool) -> float:
    """Nanoseconds of a pixel of the file at 1/`scale`; `format`: a key of `NS_PER_BYTE`."""
    per_pixel = NS_PER_PIXEL_PROGRESSIVE if format == "progressive JPEG" else NS_PER_PIXEL
    density = USUAL_BYTES_PER_PIXEL if bytes_per_pixel is None else bytes_per_pixel
    copied = NS_PILLOW / scale**2 if with_pillow else 0.0
    return NS_PER_BYTE[format] * density + per_pixel[scale] + copied


def is_jpeg(format: str) -> bool:
    """Whether a decoder can make it smaller while it decodes."""
    return format in NS_PER_BYTE


def resize_ns(library: str, read_pixels: float, made_pixels: float) -> float:
    """Nanoseconds of one resize; `library`: a key of `RESIZE_NS`."""
    per_read, per_made = RESIZE_NS[library]
    return per_read * read_pixels + per_made * made_pixels


def denominator(size: tuple[int, int], needed: tuple[float, float]) -> int:
    """8, 4, 2 or 1: the most that leaves width and height at least as large as needed."""
    for scale in (8, 4, 2):
        if all(-(-side // scale) >= least for side, least in zip(size, needed, strict=True)):
            return scale
    return 1
