"""No file within the limits costs more than 1 GB of memory and five seconds of a core."""

import io
import json
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests import making
from tests.running import run_python
from wallclock import formats
from wallclock.check import Inspector, read_header
from wallclock.errors import ImageError
from wallclock.recipe import Limits
from wallclock.stages import decode
from wallclock.stages.decode import pil

CMYK = making.jpeg(96, 64, mode="CMYK")
#: Opens at the limit: the coefficients are upper bounds, and a busy machine is slower.
SECONDS, BYTES = 5, 1_000_000_000


def flat_png(width: int, height: int, bytes_per_pixel: int, **options: int) -> bytes:
    row = bytes(width * bytes_per_pixel + 1)
    packer = zlib.compressobj(1)
    packed = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    return making.png(width, height, making.png_chunk(b"IDAT", packed), **options)


def lossless_webp(width: int, height: int) -> bytes:
    """34 bytes of any size."""
    data = bytearray(making.encode(np.zeros((16, 16, 3), np.uint8), "WEBP", lossless=True))
    (bits,) = struct.unpack_from("<I", data, 21)
    data[21:25] = struct.pack("<I", bits & 0xF0000000 | (height - 1) << 14 | (width - 1))
    return bytes(data)


def tiff_of(entries: list[tuple[int, int, int, int]], values: bytes = b"") -> bytes:
    """Entries are tag, type, count and value; `values` follow the directory."""
    body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(entries)) + body + bytes(4) + values


def deep_tiff(side: int) -> bytes:
    """One compressed strip of 16-bit RGBA, on its side."""
    packed = zlib.compress(bytes(side * side * 8), 1)
    at = 8 + 2 + 12 * 11 + 4
    tags = [(256, 4, side), (257, 4, side), (259, 3, 8), (262, 3, 2), (273, 4, at + 8), (274, 3, 6)]
    tags += [(277, 3, 4), (278, 4, side), (279, 4, len(packed)), (338, 3, 2)]
    entries = [(tag, kind, 1, value) for tag, kind, value in tags]
    entries = sorted([*entries, (258, 3, 4, at)])
    return tiff_of(entries, struct.pack("<4H", 16, 16, 16, 16) + packed)


def j2k(width: int, height: int, tile: int, components: int = 3) -> bytes:
    data = bytearray(making.encode(making.picture(64, 64), "JPEG2000", no_jp2=True))
    data[8:16] = struct.pack(">II", width, height)
    data[24:32] = struct.pack(">II", tile, tile)
    data[40:42] = struct.pack(">H", components)
    return bytes(data)


def avif(width: int, height: int) -> bytes:
    data = making.encode(making.picture(), "AVIF")
    at = data.index(b"ispe") + 8
    return data[:at] + struct.pack(">II", width, height) + data[at + 8 :]


def behind_boxes(data: bytes) -> bytes:
    """Empty boxes between the brands and the rest."""
    (at,) = struct.unpack(">I", data[:4])
    return data[:at] + struct.pack(">I4s", 8, b"free") * 10_001 + data[at:]


def avif_units(n: int) -> bytes:
    """A picture whose stream begins with temporal delimiters, in the place of its own units."""
    data = making.encode(making.picture(256, 256), "AVIF")
    at = data.index(b"mdat") + 4
    return data[:at] + b"\x12\0" * n + data[at + 2 * n :]


def rle_bmp(width: int, height: int) -> bytes:
    head = struct.pack("<2sIIIIii", b"BM", 2000, 0, 1078, 40, width, height)
    return head + struct.pack("<HHIIIIII", 1, 8, 1, 0, 0, 0, 256, 0) + bytes(1024) + b"\1\7" * 9


def with_segments(data: bytes, marker: int, body: bytes, n: int) -> bytes:
    return data[:2] + making.segment(marker, body) * n + data[2:]


COSTLY = {
    "arithmetic": making.arithmetic(16_383, 5_000, 10),
    "arithmetic colour": making.arithmetic(16_383, 5_000, 4, components=3),
    "cmyk progressive": making.claiming(
        making.jpeg(mode="CMYK", progressive=True, quality=50), 10_000, 10_000
    ),
    "webp": lossless_webp(16_383, 6_103),
    "png": making.png(10_000, 10_000, depth=16, colour=6),
    "tiff": tiff_of([(256, 4, 1, 10_000), (257, 4, 1, 10_000)]),
    "avif": avif(10_000, 10_000),
    "jp2": j2k(10_000, 10_000, 10_000),
    "bmp": rle_bmp(10_000, 10_000),
}


@pytest.mark.parametrize("name", COSTLY)
def test_refused_before_a_decoder_is_called(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for decoder in ("PIL.Image.open", "simplejpeg.decode_jpeg"):
        monkeypatch.setattr(decoder, lambda *_, **__: pytest.fail("a decoder was called"))
    with pytest.raises(ImageError, match=r"s of work, over the limit of 5|MB of memory, over"):
        read_header(COSTLY[name], Limits())


@pytest.mark.parametrize(
    "data",
    [
        making.claiming(making.jpeg(), 10_000, 10_000),
        making.claiming(making.jpeg(progressive=True), 10_000, 10_000),
        making.claiming(making.jpeg(progressive=True, subsampling=0), 10_000, 10_000),
        making.claiming(CMYK, 10_000, 10_000),
        making.arithmetic(4_000, 3_000, 10),
        making.png(10_000, 10_000),
        making.png(10_000, 10_000, colour=6),
        lossless_webp(8_000, 6_000),
    ],
    ids=["plain", "progressive", "4:4:4", "cmyk", "arithmetic", "png", "rgba", "webp"],
)
def test_honest_sizes_are_within_the_limits(data: bytes) -> None:
    header = read_header(data, Limits())
    assert header.width * header.height >= 12_000_000


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_work=100_000), r"96x64 pixels: 0\.\d+ s of work, over the limit of 0\.0001"),
        (Limits(max_memory=10_000), r"96x64 pixels: 0 MB of memory, over the limit of 0"),
    ],
)
def test_both_limits_are_settings(limits: Limits, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        read_header(CMYK, limits)


EXIF = b"Exif\0\0" + bytes(65_000)
PHOTOSHOP = b"Photoshop 3.0\0" + b"8BIM\4\4\0\0\0\0\0\0" * 5_000


@pytest.mark.parametrize(
    ("marker", "body", "n"),
    [
        (0xE1, EXIF, 750),
        pytest.param(0xE1, EXIF, 3_000, marks=pytest.mark.slow),
        (0xE1, b"http://ns.adobe.com/xap/1.0/\0" + bytes(65_000), 750),
        (0xED, PHOTOSHOP, 750),
        (0xFE, bytes(65_000), 750),
    ],
)
@pytest.mark.parametrize("decoder", ["simplejpeg", "pil"])
def test_metadata_costs_no_more_than_its_bytes(
    decoder: str, marker: int, body: bytes, n: int
) -> None:
    data = with_segments(CMYK, marker, body, n)
    before = time.process_time()
    Inspector(Limits(), decoder)(0, "a", data)
    pixels = decode.make_other("pil")(data)
    assert time.process_time() - before < SECONDS
    np.testing.assert_array_equal(pixels, decode.make_other("pil")(CMYK))


@pytest.mark.parametrize("transform", [0, 2])
def test_what_converts_colours_is_kept(transform: int) -> None:
    """Adobe's segment says whether four components are CMYK or YCCK."""
    at = CMYK.index(b"Adobe") + 11
    plain = CMYK[:at] + bytes((transform,)) + CMYK[at + 1 :]
    long = with_segments(plain, 0xE1, EXIF, 20)
    assert len(pil.without_metadata(long)) < len(plain) + 10
    assert pil.without_metadata(plain) == plain
    np.testing.assert_array_equal(decode.make_other("pil")(long), decode.make_other("pil")(plain))
    other = CMYK[:at] + bytes((2 - transform,)) + CMYK[at + 1 :]
    assert (decode.make_other("pil")(long) != decode.make_other("pil")(other)).any()


IDAT = zlib.compress(bytes(301 * 100))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (
            making.png(100, 100, *[making.png_chunk(b"IDAT", b"x")] * 20_000),
            "more PNG chunks than the limit of",
        ),
        (
            making.png(100, 100, *[making.png_chunk(b"teXt", b"")] * 20_000),
            "more PNG chunks than the limit of",
        ),
        (tiff_of([(273, 4, 300_000, 8), (256, 3, 1, 9)]), "300,000 values of tag 273, over"),
        (tiff_of([(258, 3, 300_000, 8)]), "300,000 values of tag 258, over the limit of 262,140"),
        (j2k(1_000, 1_000, 9), "more JPEG 2000 tiles than the limit of 10,000"),
        (j2k(64, 64, 64, components=999), "JPEG 2000 with 999 components"),
        (behind_boxes(avif(64, 48)), "more parts of a header than the limit of 10,000"),
        (avif_units(20), "AV1 with 16 units before its sequence header"),
    ],
    ids=["IDAT", "tEXt", "strips", "samples", "tiles", "components", "boxes", "units"],
)
def test_parts_are_limited_before_pillow_opens(
    data: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("PIL.Image.open", lambda *_, **__: pytest.fail("Pillow was called"))
    with pytest.raises(ImageError, match=reason):
        read_header(data, Limits())


PATH = (b"meta", b"iprp", b"ipco", b"ispe")


@pytest.mark.parametrize("options", [{}, {"subsampling": "4:4:4"}, {"tracks": True}])
def test_frames_of_an_avif_count_as_they_are(options: dict[str, object]) -> None:
    """What a file claims for its picture may be less than what is decoded, and then scaled."""
    picture = Image.fromarray(making.picture(96, 64))
    if options.pop("tracks", False):
        options |= {"save_all": True, "append_images": [picture.rotate(180)]}
    file = io.BytesIO()
    picture.save(file, "AVIF", speed=10, **options)
    data = file.getvalue()
    at = data.index(b"ispe") + 8
    lying = data[:at] + struct.pack(">II", 6, 4) + data[at + 8 :]
    assert {*formats.declared_sizes("avif", data)} == {(96, 64)}
    assert {*formats.declared_sizes("avif", lying)} == {(6, 4), (96, 64)}
    with pytest.raises(ImageError, match="96x64 pixels, over the limit of 6,143"):
        read_header(lying, Limits(max_pixels=96 * 64 - 1))
    # Behind what a decoder needs: a box whose long size is cut off, and a picture without a size.
    cut = b"".join(struct.pack(">I4s", 0, kind) + bytes(4 * (kind == b"meta")) for kind in PATH)
    for behind in (struct.pack(">I4s", 1, b"free"), cut):
        with pytest.raises(ImageError, match=r"over the limit of 6,143|ends within"):
            read_header(lying + behind, Limits(max_pixels=96 * 64 - 1))


@pytest.mark.parametrize("kind", [b"zTXt", b"iCCP", b"iTXt"])
def test_compressed_metadata_of_a_png_is_not_inflated(kind: bytes) -> None:
    """30 MB of zeros: Pillow's own limit of a megabyte holds."""
    bomb = zlib.compress(bytes(30_000_000), 1)
    head = b"a\0\1\0\0\0" if kind == b"iTXt" else b"a\0\0"
    data = making.png(
        100, 100, making.png_chunk(kind, head + bomb), making.png_chunk(b"IDAT", IDAT)
    )
    reason, _, n_bytes = cost_of(data)
    assert "too large" in reason
    assert n_bytes < 10_000_000


PROGRAM = """
import json, sys, time
from wallclock.check import Inspector
from wallclock.errors import ImageError
from wallclock.loader.loading import Loading
from wallclock.loader.prepare import DecodeImage
from wallclock.recipe import Limits, Recipe

def status(word):
    return 1024 * int(open('/proc/self/status').read().partition(word)[2].split()[0])

recipe = Recipe('r', 'simplejpeg', 'torch', dct_scale='auto')
inspect, decode = Inspector(Limits(), 'simplejpeg'), DecodeImage(
    Loading.of(recipe, 224), reuse=True
)

def load(data):
    try:
        decode(inspect(0, 'a', data), data)
    except ImageError as error:
        return error.reason
    return 'decoded'

n_small = int(sys.argv[1])
load(sys.stdin.buffer.read(n_small))
data = sys.stdin.buffer.read()
open('/proc/self/clear_refs', 'w').write('5')
before, start = status('VmRSS:'), time.process_time()
outcome = load(data)
seconds = time.process_time() - start
print(json.dumps([outcome, seconds, status('VmHWM:') - before]))
"""


def cost_of(data: bytes) -> tuple[str, float, int]:
    """Outcome, seconds of the processor and bytes at the peak, in a process that read a PNG."""
    small = making.png(100, 100, making.png_chunk(b"IDAT", IDAT))
    options: Any = {"input": small + data, "text": False, "check": True}
    done = run_python("-c", PROGRAM, len(small), **options)
    outcome, seconds, n_bytes = json.loads(done.stdout)
    return outcome, seconds, n_bytes


def flat(kind: str, side: int, mode: str = "RGB", **options: object) -> bytes:
    file = io.BytesIO()
    Image.new(mode, (side, side), 99).save(file, kind, **options)
    return file.getvalue()


LARGEST: dict[str, Callable[[], bytes]] = {
    "jpeg": lambda: flat("JPEG", 10_000),
    "progressive": lambda: flat("JPEG", 10_000, progressive=True, subsampling=0),
    "cmyk": lambda: flat("JPEG", 10_000, "CMYK"),
    "arithmetic": lambda: making.arithmetic(10_000, 4_000, 10, data=b"\x55" * 60),
    "png": lambda: flat_png(10_000, 10_000, 4, colour=6),
    "png 16": lambda: flat_png(8_000, 8_000, 8, depth=16, colour=6),
    "webp": lambda: lossless_webp(10_000, 5_800),
    "gif": lambda: flat("GIF", 10_000, "L"),
    "tiff": lambda: deep_tiff(7_800),
    "jp2": lambda: flat("JPEG2000", 7_000, no_jp2=True),
    "avif": lambda: flat("AVIF", 7_000, speed=10),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_files_cost_a_gigabyte_and_five_seconds(name: str) -> None:
    data = LARGEST[name]()
    outcome, seconds, n_bytes = cost_of(data)
    assert outcome == "decoded"
    assert seconds < SECONDS, f"{seconds:.1f} s"
    assert n_bytes + len(data) < BYTES, f"{n_bytes:,} bytes"
