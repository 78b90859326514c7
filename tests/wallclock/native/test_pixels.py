"""The native decoder's only pixels are libjpeg-turbo's, to the bit, at every scale."""

import io

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from wallclock import native

if native.find() is None:
    pytest.skip(f"native module: {native.described()}", allow_module_level=True)

from tests.wallclock.native import jpegs

#: Of bytes: Pillow's own buffer is too small for noise at quality 100.
ImageFile.MAXBLOCK = 1 << 20

pytestmark = pytest.mark.usefixtures("module")

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


@st.composite
def _of_opencv(draw: st.DrawFn) -> bytes:
    cv2 = pytest.importorskip("cv2")
    options = [
        (cv2.IMWRITE_JPEG_QUALITY, draw(st.integers(1, 100))),
        (cv2.IMWRITE_JPEG_PROGRESSIVE, draw(st.integers(0, 1))),
        (cv2.IMWRITE_JPEG_OPTIMIZE, draw(st.integers(0, 1))),
        (cv2.IMWRITE_JPEG_RST_INTERVAL, draw(st.integers(0, 9))),
        (
            cv2.IMWRITE_JPEG_SAMPLING_FACTOR,
            draw(st.sampled_from([0x111111, 0x211111, 0x221111, 0x121111])),
        ),
    ]
    written, data = cv2.imencode(".jpg", draw(_pictures()), [x for pair in options for x in pair])
    assert written
    return bytes(data)


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


@given(st.one_of(_of_pillow(), _of_simplejpeg(), _of_opencv()), _SEEDS)
@settings(max_examples=150)
def test_what_encoders_write_has_libjpeg_turbos_pixels(data: bytes, seed: int) -> None:
    _compare(data, seed)


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


@given(_SEEDS, st.sampled_from([1, 30, 1023]))
@settings(max_examples=40)
def test_what_overflows_does_so_as_in_libjpeg_turbo(seed: int, most: int) -> None:
    """Its vector code wraps around and saturates."""
    data = _overflowing(seed, most)
    for scale in SCALES:
        np.testing.assert_array_equal(jpegs.decoded(data, scale), _wanted(data, scale))
