"""JPEG by the native module: libjpeg-turbo's pixels to the bit, or the file is not taken."""

import io
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from tests import making
from tests.test_fuzz import mutate
from tests.wallclock.native.conftest import check_by_fuzzer
from wallclock import native

if native.find() is None:
    pytest.skip(f"native module: {native.described()}", allow_module_level=True)

from tests.wallclock.native import jpegs

#: Of bytes: Pillow's own buffer is too small for noise at quality 100.
ImageFile.MAXBLOCK = 1 << 20

SCALES = (1, 2, 4, 8)
_SEEDS = st.integers(0, 2**32 - 1)
_SIDES = st.one_of(st.integers(1, 40), st.integers(1, 200))
_BEFORE_SCANS = (b"", b"\xff\xff\xff", b"\xff\xfe\x00\x06\xff\xd9\xff\xda")  # fill bytes; a comment
_PILLOW_SAMPLINGS = {"444": 0, "422": 1, "420": 2}


def _picture(seed: int, width: int, height: int, noise: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    small = generator.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))
    noisy = smooth.astype(int) + generator.integers(-noise, noise + 1, smooth.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)


@st.composite
def _pictures(draw: st.DrawFn) -> np.ndarray:
    return _picture(draw(_SEEDS), draw(_SIDES), draw(_SIDES), draw(st.sampled_from([0, 10, 128])))


@st.composite
def _of_pillow(draw: st.DrawFn) -> bytes:
    image, file = Image.fromarray(draw(_pictures())), io.BytesIO()
    sampling = draw(st.sampled_from([*_PILLOW_SAMPLINGS, "grey", "rgb"]))
    options = {"subsampling": _PILLOW_SAMPLINGS[sampling]} if sampling in _PILLOW_SAMPLINGS else {}
    if draw(st.booleans()):
        options["restart_marker_blocks"] = draw(st.integers(1, 9))
    image.convert("L" if sampling == "grey" else "RGB").save(
        file,
        "JPEG",
        quality=draw(st.integers(1, 100)),
        progressive=draw(st.booleans()),
        optimize=draw(st.booleans()),
        keep_rgb=sampling == "rgb",
        comment=draw(st.sampled_from([b"", b"\xff\xd9\xff\xc0\xff\xda"])),
        **options,
    )
    return file.getvalue()


@st.composite
def _of_simplejpeg(draw: st.DrawFn) -> bytes:
    sampling = draw(st.sampled_from(["444", "422", "420", "440", "Gray"]))
    return _encoded(draw(_pictures()), draw(st.integers(1, 100)), sampling)


def _encoded(picture: np.ndarray, quality: int, sampling: str) -> bytes:
    grey = sampling == "Gray"
    data: bytes = simplejpeg.encode_jpeg(
        np.ascontiguousarray(picture[:, :, :1]) if grey else picture,
        quality=quality,
        colorspace="GRAY" if grey else "RGB",
        colorsubsampling=sampling,
    )
    return data


def _scripts(draw: st.DrawFn, components: int) -> tuple[jpegs.Scan, ...]:
    """A legal progressive script (G.1.1.1): bands of any width, in any order that precision has."""
    everything = tuple(range(components))
    low = draw(st.integers(0, 2))
    chains = []
    for i in everything:
        chains.append([jpegs.Scan((i,), 0, 0, bit + 1, bit) for bit in range(low)][::-1])
        cuts = sorted({*draw(st.lists(st.integers(2, 63), max_size=3)), 64})
        for first, behind in zip([1, *cuts], cuts, strict=False):
            bits = draw(st.integers(0, 2))
            chain = [jpegs.Scan((i,), first, behind - 1, 0, bits)]
            chain += [jpegs.Scan((i,), first, behind - 1, b + 1, b) for b in range(bits)][::-1]
            chains.append(chain)
    scans = [jpegs.Scan(everything, 0, 0, 0, low)]
    while left := [chain for chain in chains if chain]:
        scans.append(draw(st.sampled_from(left)).pop(0))
    return tuple(scans)


@st.composite
def _written(draw: st.DrawFn) -> jpegs.Jpeg:
    """Coefficients that some image has, in any scan script and any sampling."""
    width, height = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    generator = np.random.default_rng(draw(_SEEDS))
    across, down = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2)]))
    count = draw(st.sampled_from([1, 3, 3]))
    columns, rows = -(-width // (8 * across)), -(-height // (8 * down))
    components = []
    for i in range(count):
        h, v = (across, down) if i == 0 else (1, 1)
        quant = generator.integers(1, draw(st.sampled_from([2, 20, 256])), 64)
        values = generator.normal(0, 60 / (1 + np.arange(64)), (rows * v, columns * h, 64)) / quant
        values *= draw(st.sampled_from([0.3, 1, 5]))
        values[..., 0] = generator.integers(-1000, 1000, values.shape[:2]) / quant[0]
        components.append(jpegs.Component(h, v, np.rint(values).astype(int), quant))
    progressive = draw(st.booleans())
    scans = _scripts(draw, count) if progressive else (jpegs.Scan(tuple(range(count))),)
    return jpegs.Jpeg(
        width,
        height,
        tuple(components),
        scans,
        progressive,
        restart_interval=draw(st.sampled_from([0, 0, 1, 5])),
        short_codes=draw(st.integers(0, 7)),
        before_scans=draw(st.sampled_from(_BEFORE_SCANS)),
    )


def _scales(data: bytes) -> tuple[int, ...]:
    """Those at which an image has a size of its own: else simplejpeg may take another one."""
    return SCALES if max(simplejpeg.decode_jpeg_header(data)[:2]) > 5 else (1,)


def _wanted(data: bytes, scale: int) -> np.ndarray:
    """libjpeg-turbo's pixels."""
    height, width = simplejpeg.decode_jpeg_header(data)[:2]
    shape = -(-height // scale), -(-width // scale)
    pixels: np.ndarray = simplejpeg.decode_jpeg(
        data, "RGB", min_height=shape[0], min_width=shape[1], strict=True
    )
    assert pixels.shape[:2] == shape
    return pixels


def _compare(data: bytes, seed: int = 0) -> None:
    """At every scale, all of it and a part of it."""
    generator = np.random.default_rng(seed)
    for scale in _scales(data):
        wanted = _wanted(data, scale)
        np.testing.assert_array_equal(jpegs.decoded(data, scale), wanted)
        top, left = (int(generator.integers(0, size)) for size in wanted.shape[:2])
        height = int(generator.integers(1, wanted.shape[0] - top + 1))
        width = int(generator.integers(1, wanted.shape[1] - left + 1))
        part = jpegs.decoded(data, scale, (top, left, height, width))
        np.testing.assert_array_equal(part, wanted[top : top + height, left : left + width])


@pytest.mark.usefixtures("module")
@given(_of_pillow() | _of_simplejpeg(), _SEEDS)
@settings(max_examples=150)
def test_what_encoders_write_has_libjpeg_turbos_pixels(data: bytes, seed: int) -> None:
    _compare(data, seed)


@pytest.mark.usefixtures("module")
@given(_written(), _SEEDS)
@settings(max_examples=100)
def test_any_legal_scan_script_has_libjpeg_turbos_pixels(jpeg: jpegs.Jpeg, seed: int) -> None:
    _compare(jpeg.encoded(), seed)


def _overflowing(seed: int, most: int) -> bytes:
    """Coefficients that no image has: of half of the blocks in the first row of the block alone."""
    generator = np.random.default_rng(seed)
    values = generator.integers(-most, most + 1, (2, 5, 64))
    values[generator.random(values.shape) < generator.random((2, 5, 1))] = 0
    values[0] *= np.isin(np.arange(64), [0, 1, 5, 6, 14, 15, 27, 28])
    values[..., 0] = 0
    component = jpegs.Component(1, 1, values, generator.integers(1, 256, 64))
    return jpegs.Jpeg(40, 16, (component,), (jpegs.Scan((0,)),)).encoded()


@pytest.mark.usefixtures("module")
@given(_SEEDS, st.sampled_from([1, 30, 1023]))
@settings(max_examples=40)
def test_what_overflows_does_so_as_in_libjpeg_turbo(seed: int, most: int) -> None:
    """Its vector code wraps around and saturates."""
    data = _overflowing(seed, most)
    for scale in SCALES:
        np.testing.assert_array_equal(jpegs.decoded(data, scale), _wanted(data, scale))


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

    frame = struct.pack(">BHHB", 8, 64, 640, 3) + bytes([1, luma, 0, 2, 0x11, 0, 3, 0x11, 0])
    lengths = bytes(15) + b"\x01"
    return b"".join(
        (
            b"\xff\xd8",
            making.segment(0xDB, b"\0" + b"\x01" * 64),
            making.segment(0xC4, b"\x00" + lengths + b"\x0b" + b"\x10" + lengths + b"\x0a"),
            making.segment(0xC0, frame),
            making.segment(0xDD, struct.pack(">H", restarts)),
            making.segment(0xDA, bytes([3, 1, 0, 2, 0, 3, 0, 0, 63, 0])),
            bytes(300),
            b"\xff\xd9",
        )
    )


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
        data = mutate(dice.choice(whole), dice, whole)
        scale = dice.choice([1, 2, 4, 8])
        pixels = jpegs.decoded(data, scale)
        if isinstance(pixels, str):
            continue
        # At 1/8 some scans of progressive files are passed over: damage in them is not noticed.
        strict = not (scale == 8 and b"\xff\xc2" in data)
        np.testing.assert_array_equal(pixels, _pixels(data, scale, strict))
        decoded += 1
    return decoded


SLOW = [pytest.param(seed, 10_000, marks=pytest.mark.slow) for seed in range(1, 21)]


@pytest.mark.parametrize(("seed", "files"), [(0, 2000), *SLOW])
def test_damaged_files_have_libjpeg_turbos_pixels_or_fall_back(seed: int, files: int) -> None:
    assert _count_decoded(seed, files) > files // 20


@pytest.mark.parametrize("luma", [0x11, 0x21, 0x12, 0x22])
@pytest.mark.parametrize("scale", [1, 8])
def test_the_longest_blocks_are_not_read_behind_the_end(luma: int, scale: int) -> None:
    assert jpegs.decoded(_longest_blocks(luma, 0), scale) == "irregular"


@pytest.mark.slow
def test_sanitizers_have_no_complaint_of_what_a_fuzzer_finds(tmp_path: Path) -> None:
    long = [_longest_blocks(luma, 7 * (luma % 2)) for luma in (0x11, 0x21, 0x12, 0x22)]
    files = dict[str, bytes]()
    for number, data in enumerate([*_whole_files(), *long, *long[::-1]]):
        scale, part = number % 4, number * 37 % 256
        files[f"{number}"] = bytes([part & 0xF4 | scale, part]) + data
    check_by_fuzzer("fuzz_jpeg.c", ["binding.c"], files, tmp_path)
