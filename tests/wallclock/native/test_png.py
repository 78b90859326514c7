"""PNG by the native module: Pillow's pixels, or Pillow itself."""

import io
import random
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests import making
from tests.test_fuzz import mutate, takes_less_than
from tests.wallclock.native.conftest import Guarded, check_by_fuzzer
from wallclock import native

if native.find() is None:
    pytest.skip(f"native module: {native.described()}", allow_module_level=True)

from tests.wallclock.native import jpegs

_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_ANCILLARY = {
    b"gAMA": struct.pack(">I", 45455),
    b"sRGB": b"\0",
    b"pHYs": bytes(9),
    b"cHRM": bytes(32),
    b"tEXt": b"Software\0a test",
    b"zTXt": b"Comment\0\0" + zlib.compress(b"text"),
    b"iTXt": b"Title\0\0\0en\0\0words",
    b"iCCP": b"profile\0\0" + zlib.compress(bytes(3000)),
    b"tIME": bytes(7),
    b"prVt": b"of someone's own",
}


def _png(
    width: int,
    height: int,
    type: int,
    data: list[bytes],
    before: Sequence[tuple[bytes, bytes]] = (),
    behind: Sequence[tuple[bytes, bytes]] = (),
    rest: tuple[int, ...] = (8, 0, 0, 0),
) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, rest[0], type, *rest[1:])
    chunks = [(b"IHDR", header), *before, *((b"IDAT", part) for part in data), *behind]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        making.png_chunk(*one) for one in [*chunks, (b"IEND", b"")]
    )


def _deflated(draw: st.DrawFn, raw: bytes) -> bytes:
    level = draw(st.integers(0, 9))
    strategy = draw(st.sampled_from([0, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY, zlib.Z_FIXED]))
    deflate = zlib.compressobj(level, zlib.DEFLATED, 15, draw(st.integers(1, 9)), strategy)
    cut = draw(st.integers(0, len(raw)))
    flush = draw(st.sampled_from([zlib.Z_NO_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH]))
    first = deflate.compress(raw[:cut]) + deflate.flush(flush)
    return first + deflate.compress(raw[cut:]) + deflate.flush()


def _split(draw: st.DrawFn, data: bytes) -> list[bytes]:
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@st.composite
def _pngs(draw: st.DrawFn) -> bytes:
    """Any filters on bytes of any kind, in any blocks and chunks."""
    width, height = draw(st.integers(1, 70)), draw(st.integers(1, 40))
    type = draw(st.sampled_from(list(_CHANNELS)))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    most = draw(st.sampled_from([1, 2, 5, 256]))
    rows = generator.integers(0, most, (height, 1 + width * _CHANNELS[type]), dtype=np.uint8)
    rows[:, 0] = generator.integers(
        *draw(st.sampled_from([(0, 5), (4, 5), (0, 1), (3, 5)])), height
    )
    names = draw(st.lists(st.sampled_from(list(_ANCILLARY)), max_size=4, unique=True))
    before = [(name, _ANCILLARY[name]) for name in names]
    if type == 3:
        before.append((b"PLTE", generator.bytes(3 * draw(st.integers(1, 256)))))
    if draw(st.booleans()) and type < 4:
        before.append((b"tRNS", bytes({0: 2, 2: 6, 3: 1}[type])))
    behind = [(b"tEXt", b"Comment\0behind")] if draw(st.booleans()) else []
    data = _split(draw, _deflated(draw, rows.tobytes()))
    return _png(width, height, type, data, before, behind)


def _wanted(data: bytes, mode: str = "RGB") -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert(mode))


def _decoded(data: bytes, mode: str) -> Any:
    if mode == "RGB":
        return jpegs.decoded(data, 1)
    module = native.find()
    chunk = module.open([data], len(data))
    size = chunk.headers[0][4], chunk.headers[0][3]
    row = np.empty((*size, 1), np.uint8)
    status = chunk.fill([module.Plan(size, size)], [row])[0][0]
    return module.STATUSES[status] if status else row[..., 0]


@given(_pngs(), st.sampled_from(["RGB", "RGB", "L"]), st.integers(0, 2**32 - 1))
@settings(max_examples=150)
def test_pixels_are_pillows(module: Any, data: bytes, mode: str, seed: int) -> None:
    wanted, pixels = _wanted(data, mode), _decoded(data, mode)
    if mode == "L" and data[25] in (2, 3, 6):
        assert pixels == "another kind of image"
        return
    np.testing.assert_array_equal(pixels, wanted)
    if mode == "RGB":
        dice = random.Random(seed)
        top, left = (dice.randrange(size) for size in wanted.shape[:2])
        height, width = dice.randint(1, len(wanted) - top), dice.randint(1, wanted.shape[1] - left)
        part = jpegs.decoded(data, 1, (top, left, height, width))
        np.testing.assert_array_equal(part, wanted[top : top + height, left : left + width])


@given(data=_pngs())
@settings(max_examples=30)
def test_reads_end_at_the_file(module: Any, guarded: Guarded, data: bytes) -> None:
    memory: Any = guarded(len(data))
    memory[:] = np.frombuffer(data, np.uint8)
    assert not isinstance(jpegs.decoded(memory, 1), str)
    for n in range(0, len(data), 1 + len(data) // 20):
        module.open([memory[n:]], len(data))


_RAW = bytes(5 * (1 + 3 * 4))
_GOOD, _LARGE = zlib.compress(_RAW), b"name\0\0" + zlib.compress(bytes(2 << 20))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (_png(4, 5, 2, [_GOOD], rest=(16, 0, 0, 0)), "another kind of image"),
        (_png(4, 5, 2, [_GOOD], rest=(8, 0, 0, 1)), "another kind of image"),
        (_png(4, 5, 3, [zlib.compress(bytes(25))]), "irregular"),  # no palette
        (_png(4, 5, 2, [zlib.compress(_RAW + b"\0")]), "irregular"),
        (_png(4, 5, 2, [zlib.compress(_RAW[1:])]), "irregular"),
        (_png(4, 5, 2, [_GOOD + b"\0"]), "irregular"),
        (_png(4, 5, 2, [_GOOD[:-1] + b"\2"]), "irregular"),  # Adler-32
        (_png(4, 5, 2, [zlib.compress(b"\5" + _RAW[1:])]), "irregular"),  # a filter
        (_png(4, 5, 2, [_GOOD], [(b"gAMA", b"\0")]), "irregular"),
        (_png(4, 5, 2, [_GOOD], [(b"acTL", bytes(8))]), "irregular"),
        (_png(4, 5, 2, [_GOOD], [(b"iCCP", _LARGE)]), "irregular"),
        (_png(4, 5, 2, [_GOOD], [(b"zTXt", _LARGE)]), "irregular"),
        (_png(4, 5, 2, [_GOOD[:9]], [], [(b"tEXt", b"a\0b"), (b"IDAT", _GOOD[9:])]), "irregular"),
        (_png(9000, 9000, 2, [_GOOD]), "irregular"),
        (_png(4, 5, 2, [_GOOD])[:-12], "irregular"),
    ],
)
def test_what_falls_back(data: bytes, reason: str) -> None:
    assert jpegs.decoded(data, 1) == reason


def test_a_stream_of_gigabytes_takes_no_memory_but_the_images() -> None:
    deflate = zlib.compressobj(9)
    bomb = b"".join(deflate.compress(bytes(1 << 24)) for _ in range(32)) + deflate.flush()
    with takes_less_than(64 << 20):
        assert jpegs.decoded(_png(100, 100, 2, [bomb]), 1) == "irregular"


def _damaged(dice: random.Random, whole: list[bytes]) -> bytes:
    """A file with some bytes changed, often with checksums that fit all the same."""
    data = bytearray(mutate(dice.choice(whole), dice, whole))
    at = 8
    while dice.randrange(8) and at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if at + 12 + size > len(data):
            break
        body = data[at + 4 : at + 8 + size]
        data[at + 8 + size : at + 12 + size] = struct.pack(">I", zlib.crc32(body))
        at += 12 + size
    return bytes(data)


def _whole_files() -> list[bytes]:
    generator, files = np.random.default_rng(0), []
    for number, mode in enumerate(["RGB", "RGBA", "L", "LA", "P"] * 4):
        small = generator.integers(0, 256, (9, 7, 4), dtype=np.uint8)
        image = Image.fromarray(small).resize((5 + 11 * number % 50, 4 + number), 3)
        file = io.BytesIO()
        image = image.convert("RGB" if mode == "P" else mode).convert(mode)
        image.save(file, "PNG", compress_level=number % 10)
        files.append(file.getvalue())
    return files


def _count_decoded(seed: int, files: int) -> int:
    dice, decoded, whole = random.Random(seed), 0, _whole_files()
    for _ in range(files):
        data = _damaged(dice, whole)
        pixels = jpegs.decoded(data, 1)
        if not isinstance(pixels, str) and data[:4] == b"\x89PNG":
            np.testing.assert_array_equal(pixels, _wanted(data))
            decoded += 1
    return decoded


SLOW = [pytest.param(seed, 20_000, marks=pytest.mark.slow) for seed in range(1, 11)]


@pytest.mark.parametrize(("seed", "files"), [(0, 2000), *SLOW])
def test_damaged_files_have_pillows_pixels_or_fall_back(seed: int, files: int) -> None:
    assert _count_decoded(seed, files) > files // 100


@pytest.mark.slow
def test_sanitizers_have_no_complaint_of_what_a_fuzzer_finds(tmp_path: Path) -> None:
    files = dict[str, bytes]()
    for number, data in enumerate(_whole_files()):
        files |= {f"{number}": b"\xfe" + data, f"stream {number}": b"\1" + data[41:-16]}
    # The target has the latter of these.
    check_by_fuzzer("fuzz_png.c", ["binding.c", "png.c"], files, tmp_path)
