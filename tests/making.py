"""Images made for the tests: pictures with structure, files of every odd kind."""

import io
import struct
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]


def picture(width: int = 64, height: int = 48, seed: int = 0) -> Pixels:
    """A smooth RGB gradient with a hard-edged box, different for each seed."""
    rng = np.random.default_rng(seed)
    x, y = np.linspace(0, 1, width)[None, :, None], np.linspace(0, 1, height)[:, None, None]
    low = rng.uniform(20, 80, 3)
    right = rng.uniform(0, 90, 3)
    down = rng.uniform(0, 80, 3)
    pixels = low + right * x + down * y
    pixels[height // 4 : height // 2, width // 4 : width // 2] = rng.uniform(0, 255, 3)
    return pixels.astype(np.uint8)


def encode(pixels: Pixels, kind: str = "JPEG", mode: str = "RGB", **options: Any) -> bytes:
    """Pixels as a file of a format that Pillow writes."""
    file = io.BytesIO()
    image = Image.fromarray(pixels)
    (image if mode == "RGB" else image.convert(mode)).save(file, kind, **options)
    return file.getvalue()


def jpeg(
    width: int = 64, height: int = 48, seed: int = 0, mode: str = "RGB", **options: Any
) -> bytes:
    """A JPEG of `picture`; options are Pillow's (quality, subsampling, progressive, exif)."""
    return encode(picture(width, height, seed), "JPEG", mode, **options)


def folder(path: Path, n: int, width: int = 64, height: int = 48) -> Path:
    """A new folder of n JPEGs, all different: 0.jpg, 1.jpg and so on."""
    path.mkdir()
    for seed in range(n):
        (path / f"{seed}.jpg").write_bytes(jpeg(width, height, seed))
    return path


def exif(orientation: int) -> Image.Exif:
    """EXIF that asks for a rotation or a mirror."""
    made = Image.Exif()
    made[0x0112] = orientation
    return made


def oriented(orientation: int, **options: Any) -> bytes:
    """A JPEG with such EXIF."""
    return jpeg(exif=exif(orientation), **options)


def png_16_bit(width: int = 8, height: int = 6) -> bytes:
    """A grayscale PNG of 16 bits a sample, black to white from left to right."""
    ramp = np.tile(np.linspace(0, 65535, width).astype(np.uint16), (height, 1))
    file = io.BytesIO()
    Image.fromarray(ramp).save(file, "PNG")
    return file.getvalue()


def segment(marker: int, body: bytes) -> bytes:
    """A segment of a JPEG."""
    return bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body


def png_chunk(kind: bytes, body: bytes) -> bytes:
    """A chunk of a PNG, with its checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, *chunks: bytes, depth: int = 8, colour: int = 2) -> bytes:
    """A PNG that says it is of this size, with these chunks."""
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = [png_chunk(b"IHDR", head), *chunks, png_chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def claiming(data: bytes, width: int, height: int) -> bytes:
    """The same JPEG with another size in its frame header."""
    at = frame_at(data)
    return data[: at + 5] + struct.pack(">HH", height, width) + data[at + 9 :]


def frame_at(data: bytes) -> int:
    """Where the start-of-frame segment of a baseline or progressive JPEG begins."""
    return min(at for at in (data.find(b"\xff\xc0"), data.find(b"\xff\xc2")) if at > 0)


def scan_bomb(scans: int, between: bytes = b"", width: int = 2000, height: int = 2000) -> bytes:
    """A progressive JPEG of a few KB whose last scan is repeated, with `between` after each."""
    data = encode(np.full((height, width), 128, np.uint8), "JPEG", "L", progressive=True)
    last, end = data.rindex(b"\xff\xda"), data.rindex(b"\xff\xd9")
    return data[:last] + (data[last:end] + between) * scans + data[end:]


def arithmetic(
    width: int, height: int, scans: int = 1, components: int = 1, data: bytes = b""
) -> bytes:
    """An arithmetic-coded JPEG: `data` is decoded in each scan, and then zeros without an end.

    One scan: sequential. More: progressive, of the first component's DC, then its AC again and
    again, or of each component's in turn.
    """

    planes = range(1, components + 1)
    frame = struct.pack(">BHHB", 8, height, width, components)
    frame += b"".join(bytes((plane, 0x11, 0)) for plane in planes)
    everything = bytes((components,)) + b"".join(bytes((plane, 0)) for plane in planes)
    file = b"\xff\xd8" + segment(0xDB, bytes((0, *[1] * 64)))
    file += segment(0xC9 if scans == 1 else 0xCA, frame)
    file += segment(0xDA, everything + bytes((0, 63 if scans == 1 else 0, 0))) + data
    for number in range(scans - 1):
        plane = number % components + 1
        file += segment(0xDA, bytes((1, plane, 0, 1, 63, 0))) + data
    return file + b"\xff\xd9"


def tar(members: Iterable[tuple[str, bytes]], mode: Any = "w") -> bytes:
    """A tar of files; `mode` is tarfile's, as `w:gz`."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as opened:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            opened.addfile(info, io.BytesIO(data))
    return file.getvalue()
