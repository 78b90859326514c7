"""Damaged files: the native decoder has libjpeg-turbo's pixels, or hands the file over."""

import io
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from wallclock import native

if native.find() is None:
    pytest.skip(f"native module: {native.described()}", allow_module_level=True)

from tests.wallclock.native import jpegs

_SOURCES = Path(native.__file__).parent
_TARGET = Path(__file__).with_name("fuzz_jpeg.c")
_INSERTED = (
    b"\xff",
    b"\xff\xfe\x00\x04ab",
    b"\xff\xdd\x00\x04\x00\x01",  # DRI
    b"\xff\xdc\x00\x04\x00\x10",  # DNL
    b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00",
)


def _whole_files() -> Iterator[bytes]:
    """Small ones of each kind, restart intervals and tables of their own among them."""
    generator = np.random.default_rng(0)
    for width, height in ((33, 40), (64, 7), (130, 71)):
        small = generator.integers(0, 256, (height // 5 + 1, width // 5 + 1, 3), dtype=np.uint8)
        image = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
        for number in range(24):
            file = io.BytesIO()
            image.convert("L" if number % 8 == 7 else "RGB").save(
                file,
                "JPEG",
                quality=(30, 75, 95)[number % 3],
                subsampling=number % 4 % 3,
                progressive=number % 2 == 1,
                optimize=number % 5 == 0,
                restart_marker_blocks=(0, 0, 1, 5)[number // 2 % 4],
            )
            yield file.getvalue()
        yield simplejpeg.encode_jpeg(np.asarray(image), 80, "RGB", "440")


def _longest_blocks(luma: int, restarts: int) -> bytes:
    """A scan that ends early, of 208 bytes a block: all codes have 16 bits."""

    def segment(marker: int, body: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body

    frame = struct.pack(">BHHB", 8, 64, 640, 3) + bytes([1, luma, 0, 2, 0x11, 0, 3, 0x11, 0])
    lengths = bytes(15) + b"\x01"
    return b"".join(
        (
            b"\xff\xd8",
            segment(0xDB, b"\0" + b"\x01" * 64),
            segment(0xC4, b"\x00" + lengths + b"\x0b" + b"\x10" + lengths + b"\x0a"),
            segment(0xC0, frame),
            segment(0xDD, struct.pack(">H", restarts)),
            segment(0xDA, bytes([3, 1, 0, 2, 0, 3, 0, 0, 63, 0])),
            bytes(300),
            b"\xff\xd9",
        )
    )


def _markers(data: bytes | bytearray) -> list[int]:
    return [at for at in range(len(data) - 1) if data[at] == 0xFF and data[at + 1] not in (0, 0xFF)]


def _damage(dice: random.Random, data: bytearray) -> None:
    """Once, anywhere: often in a header, at a marker, or by whole segments."""
    markers = _markers(data)
    if len(markers) < 3:
        return
    at, marker, behind = dice.randrange(len(data)), dice.choice(markers), dice.choice(markers)
    kind = dice.randrange(9)
    if kind < 2:
        data[at] ^= 1 << dice.randrange(8)
    elif kind == 2:
        data[at] = dice.randrange(256)
    elif kind == 3:
        data[dice.randrange(min(700, len(data)))] = dice.randrange(256)
    elif kind == 4:
        at = min(marker + dice.randrange(16), len(data) - 1)
        data[at] = dice.choice([0, 1, 0x11, 0x22, 0xFF, data[at] ^ 1])
    elif kind == 5:
        del data[at : dice.choice([at + 1, at + 8, len(data)])]
    elif kind == 6:
        data[at:at] = dice.randbytes(dice.randrange(1, 5))
    elif kind == 7:
        data[marker:marker] = dice.choice(_INSERTED)
    else:
        segment = data[min(marker, behind) : max(marker, behind)]
        if dice.randrange(2):
            del data[min(marker, behind) : max(marker, behind)]
        else:
            data[behind:behind] = segment


def _pixels(data: bytes, scale: int, strict: bool) -> np.ndarray:
    height, width = simplejpeg.decode_jpeg_header(data)[:2]
    pixels: np.ndarray = simplejpeg.decode_jpeg(
        data, "RGB", min_height=-(-height // scale), min_width=-(-width // scale), strict=strict
    )
    return pixels


def _count_decoded(seed: int, files: int) -> int:
    """Damages files, and checks the pixels of those that do not fall back."""
    dice, decoded = random.Random(seed), 0
    whole = list(_whole_files())
    for _ in range(files):
        data = bytearray(dice.choice(whole))
        for _ in range(dice.choice([1, 1, 1, 2, 5])):
            _damage(dice, data)
        scale = dice.choice([1, 2, 4, 8])
        pixels = jpegs.decoded(bytes(data), scale)
        if isinstance(pixels, str):
            continue
        # At 1/8 some scans of progressive files are passed over: damage in them is not noticed.
        strict = not (scale == 8 and b"\xff\xc2" in data)
        np.testing.assert_array_equal(pixels, _pixels(bytes(data), scale, strict))
        decoded += 1
    return decoded


def test_damaged_files_have_libjpeg_turbos_pixels_or_fall_back() -> None:
    assert _count_decoded(0, 1000) > 100


@pytest.mark.parametrize("luma", [0x11, 0x21, 0x12, 0x22])
@pytest.mark.parametrize("scale", [1, 8])
def test_the_longest_blocks_are_not_read_behind_the_end(luma: int, scale: int) -> None:
    assert jpegs.decoded(_longest_blocks(luma, 0), scale) == "irregular"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_200_000_damaged_files(seed: int) -> None:
    assert _count_decoded(seed, 10_000) > 1000


@pytest.mark.slow
def test_sanitizers_have_no_complaint_of_what_a_fuzzer_finds(tmp_path: Path) -> None:
    if shutil.which("clang") is None:
        pytest.skip("libFuzzer is a part of clang")
    sources = [path for path in _SOURCES.glob("*.c") if path.name != "binding.c"]
    options = ["-std=gnu11", "-O1", "-g", "-fwrapv", "-ffp-contract=off", f"-I{_SOURCES}"]
    options += ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined"]
    fuzzer, seeds, found = tmp_path / "fuzzer", tmp_path / "seeds", tmp_path / "found"
    subprocess.run(["clang", *options, *sources, _TARGET, "-lm", "-o", fuzzer], check=True)
    seeds.mkdir()
    found.mkdir()
    long = [_longest_blocks(luma, 7 * (luma % 2)) for luma in (0x11, 0x21, 0x12, 0x22)]
    for number, data in enumerate([*_whole_files(), *long, *long[::-1]]):
        scale, part = number % 4, number * 37 % 256
        (seeds / str(number)).write_bytes(bytes([part & 0xF4 | scale, part]) + data)
    limits = ["-runs=300000", "-max_len=8192", "-timeout=20", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run([fuzzer, *limits, found, seeds], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
