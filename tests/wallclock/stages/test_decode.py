"""Decoders agree: the same pixels of a valid file, an ImageError for any other."""

import io
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import wallclock
from harness import decoders as registered
from harness import provenance
from tests import making
from wallclock import open_images
from wallclock.check import validate
from wallclock.errors import ImageError, Unavailable
from wallclock.preprocess import denominator_for
from wallclock.recipe import Limits
from wallclock.stages import decode
from wallclock.stages.decode import pil, webp
from wallclock.stages.pixels import PixelArray
from wallclock.stages.resize import extent

Decoders = dict[str, decode.Decode]

#: Builds of libjpeg-turbo differ in the last bit of some SIMD paths.
CLOSE = 2
JPEG = making.jpeg(400, 300)


@pytest.fixture(scope="module")
def decoders() -> Decoders:
    made = {}
    for name in registered.NAMES:
        try:
            made[name] = decode.make(name)
        except Unavailable as error:
            if not decode.DECODERS[name].optional:
                pytest.skip(str(error))
    return made


def _is_strict(name: str) -> bool:
    return decode.DECODERS[name].strict


def largest_difference(pixels: PixelArray, reference: PixelArray) -> int:
    assert pixels.shape == reference.shape
    return int(np.abs(pixels.astype(np.int16) - reference.astype(np.int16)).max())


def agree(data: bytes, decoders: Decoders) -> PixelArray:
    """Decode by all, compare with Pillow's, return the pixels."""
    reference = decoders["pil"](data)
    for name, decoder in decoders.items():
        pixels = decoder(data)
        assert (pixels.dtype.name, pixels.flags.c_contiguous) == ("uint8", True)
        assert largest_difference(pixels, reference) <= CLOSE, name
    return reference


def test_decoders_state_themselves() -> None:
    pinned = [name for name in registered.NAMES if not decode.DECODERS[name].optional]
    assert all(decoder.name == name for name, decoder in decode.DECODERS.items())
    for name in pinned:
        libraries = {*decode.DECODERS[name].libraries, registered.LIBRARY_OF[name]}
        assert libraries <= provenance.versions().keys()


def test_photos(photos: list[Path], decoders: Decoders) -> None:
    for path in photos[::3]:
        agree(path.read_bytes(), decoders)


@pytest.mark.filterwarnings("ignore:Image appears to be a malformed MPO")  # and still a JPEG
@pytest.mark.slow
def test_odd_files_that_decode(torture: list[tuple[Path, str]], decoders: Decoders) -> None:
    for path, expected in torture:
        if expected == "decodes":
            data = path.read_bytes()
            header = validate(data, Limits())
            plain = header.format == "jpeg" and header.components < 4
            pixels = agree(data, decoders) if plain else decode.make_other("pil")(data)
            assert pixels.shape == (header.height, header.width, 3), path.name


@settings(max_examples=60)
@given(
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    quality=st.integers(1, 100),
    subsampling=st.sampled_from(["4:4:4", "4:2:2", "4:2:0"]),
    progressive=st.booleans(),
    mode=st.sampled_from(["RGB", "L"]),
    seed=st.integers(0, 99),
)
def test_any_jpeg(
    decoders: Decoders, size: tuple[int, int], mode: str, subsampling: str, **options: Any
) -> None:
    if mode == "RGB":
        options["subsampling"] = subsampling
    pixels = agree(making.jpeg(*size, mode=mode, **options), decoders)
    assert pixels.shape == (size[1], size[0], 3)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_ignored(orientation: int, decoders: Decoders) -> None:
    upright = agree(making.jpeg(), decoders)
    assert largest_difference(agree(making.oriented(orientation), decoders), upright) == 0


@pytest.mark.parametrize("name", [name for name in registered.NAMES if _is_strict(name)])
def test_warning_is_an_error(name: str, decoders: Decoders) -> None:
    middle = len(JPEG) // 2
    with pytest.raises(ImageError, match=r"Corrupt|extraneous|premature"):
        decoders[name](JPEG[:middle] + bytes(100) + JPEG[middle + 100 :])


@pytest.mark.parametrize("end", [0, 3, 60, 0.1, 0.5, 0.99])
def test_truncated_file(end: float, decoders: Decoders) -> None:
    data = JPEG[: int(len(JPEG) * end) if end < 1 else int(end)]
    # These make the rest gray; validation refuses such files.
    for name in set(decoders) - ({"opencv", "imagecodecs"} if len(data) > 60 else set()):
        with pytest.raises(ImageError, match=r".") as caught:
            decoders[name](data)
        assert caught.value.stage == "decode"


FRAMES: dict[str, Any] = {
    "save_all": True,
    "append_images": [Image.fromarray(making.picture(seed=2))],
}


def tiff(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "TIFF", **options)
    return file.getvalue()


def converted(data: bytes) -> PixelArray:
    """By Pillow, as transformers' `load_image` has it."""
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


PICTURE = Image.fromarray(making.picture())
POLICY = {
    "alpha": making.encode(making.picture(), "PNG", "RGBA"),
    "grey and alpha": making.encode(making.picture(), "PNG", "LA"),
    "palette": making.encode(making.picture(), "PNG", "P"),
    "palette, one colour transparent": making.encode(making.picture(), "PNG", "P", transparency=3),
    "1 bit": making.encode(making.picture(), "PNG", "1"),
    "BMP of 1 bit": making.encode(making.picture(), "BMP", "1"),
    "CMYK JPEG": making.jpeg(mode="CMYK"),
    "CMYK TIFF": tiff(PICTURE.convert("CMYK")),
    "LAB TIFF": tiff(PICTURE.convert("LAB")),
    "YCbCr TIFF": tiff(PICTURE.convert("YCbCr")),
    "JPEG in a TIFF": tiff(PICTURE, compression="jpeg"),
    "pages of a TIFF": tiff(PICTURE, **FRAMES),
    "frames of a WebP": making.encode(making.picture(), "WEBP", **FRAMES),
    "frames of a GIF": making.encode(making.picture(), "GIF", "P", **FRAMES),
    "frames of an AVIF": making.encode(making.picture(), "AVIF", **FRAMES),
    "JPEG 2000 with alpha": making.encode(making.picture(), "JPEG2000", "RGBA"),
}


@pytest.mark.parametrize("name", POLICY)
def test_the_policy_is_pillows(name: str) -> None:
    pixels = decode.make_other("pil")(POLICY[name])
    np.testing.assert_array_equal(pixels, converted(POLICY[name]))


def still_webps() -> list[bytes]:
    """With what may surround the image in the file."""
    about: list[dict[str, Any]] = [
        {},
        {"exif": making.exif(6)},
        {"icc_profile": b"x" * 99, "xmp": b"<x/>"},
    ]
    made = []
    for mode, lossless in (("RGB", False), ("RGB", True), ("RGBA", False), ("RGBA", True)):
        pixels = making.picture(40, 30)
        if mode == "RGBA":  # transparent pixels keep their colours
            alpha = np.arange(1200, dtype=np.uint16).reshape(30, 40, 1) % 256
            pixels = np.concatenate([pixels, alpha.astype(np.uint8)], axis=2)
        for each in about:
            options = {"lossless": lossless, "exact": True, **each}
            made.append(making.encode(pixels, "WEBP", mode, **options))
    return made


WEBPS = still_webps()


def test_a_still_webp_is_pillows_whoever_decodes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, by_pillow = [], pil.decode_in_place

    def decode_in_place(data: bytes, mode: str) -> PixelArray:
        calls.append(mode)
        return by_pillow(data, mode)

    monkeypatch.setattr(decode.pil, "decode_in_place", decode_in_place)
    for data in WEBPS:
        np.testing.assert_array_equal(decode.make_other("pil")(data), converted(data))
    assert not calls
    assert webp.label()["webp"].startswith("opencv 4.")
    with open_images([WEBPS[0]]) as batches:
        assert next(batches).extras.labels["webp"].startswith("opencv 4.")
    monkeypatch.setattr(webp, "opencv", cache(lambda: None))
    assert webp.label() == {}
    for data in WEBPS:
        np.testing.assert_array_equal(decode.make_other("pil")(data), converted(data))
    assert len(calls) == len(WEBPS)
    assert webp.label() == {"webp": "pil"}


@settings(max_examples=100)
@given(st.sampled_from(WEBPS), st.data())
def test_a_damaged_webp_is_what_pillow_says_it_is(data: bytes, draw: st.DataObject) -> None:
    """Also where a damaged image could be read on into what follows it."""
    damaged = bytearray(data[: draw.draw(st.integers(40, len(data)) | st.just(len(data)))])
    for _ in range(draw.draw(st.integers(0, 3))):
        damaged[draw.draw(st.integers(0, len(damaged) - 1))] = draw.draw(st.integers(0, 255))
    try:
        expected = wallclock.decode(converted_or_none(bytes(damaged)), preprocess="squash")
    except ImageError:
        with pytest.raises(ImageError):
            wallclock.decode(bytes(damaged))
    else:
        np.testing.assert_array_equal(wallclock.decode(bytes(damaged)), expected)


def converted_or_none(data: bytes) -> Any:
    """What Pillow makes of a WebP; what is no image, if it refuses it."""
    try:
        with Image.open(io.BytesIO(data), formats=("WEBP",)) as image:
            return np.asarray(image.convert("RGB"))
    except Exception:  # noqa: BLE001 - Pillow raises what it likes
        return b""


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG2000"])
def test_of_16_bit_grey_the_high_byte_counts(kind: str) -> None:
    """Where Pillow clips: the one exception."""
    ramp = np.linspace(0, 65_535, 48 * 64).astype(np.uint16).reshape(48, 64)
    data = making.encode(ramp, kind)  # type: ignore[arg-type]
    pixels = decode.make_other("pil")(data)
    np.testing.assert_array_equal(pixels, (ramp >> 8).astype(np.uint8)[..., None].repeat(3, 2))
    assert (converted(data) == 255).mean() > 0.9


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_a_tiff_of_no_stated_range_is_refused(kind: type) -> None:
    data = tiff(Image.fromarray(np.arange(96, dtype=kind).reshape(8, 12)))
    with pytest.raises(ImageError, match="convert it to 8 or 16 bits a sample"):
        decode.make_other("pil")(data)


def test_white_as_zero_in_16_bits_is_refused() -> None:
    """Pillow would take black for white."""
    data = tiff(Image.fromarray(np.zeros((8, 12), np.uint16)))
    at = data.index(struct.pack("<HHI", 262, 3, 1)) + 8
    assert data[at] == 1
    with pytest.raises(ImageError, match="inverted"):
        decode.make_other("pil")(data[:at] + b"\0" + data[at + 1 :])


SCALING = [name for name, decoder in decode.DECODERS.items() if decoder.scales]


class TestScaling:
    """DCT-scaled decoding: never too small, the same shape in every library."""

    @pytest.mark.parametrize("reuse", [False, True])
    @pytest.mark.parametrize("name", SCALING)
    @settings(max_examples=12)
    @given(
        width=st.integers(1, 700),
        height=st.integers(1, 700),
        progressive=st.booleans(),
        mode=st.sampled_from(["RGB", "L"]),
        subsampling=st.sampled_from([0, 1, 2]),
    )
    def test_shape(
        self, name: str, reuse: bool, width: int, height: int, mode: str, **options: Any
    ) -> None:
        n = denominator_for(height, width, 60, 60)
        decoder = decode.make(name, scales=True, reuse=reuse)
        pixels = decoder(making.jpeg(width, height, mode=mode, **options), n)
        assert pixels.shape == (-(-height // n), -(-width // n), 3)
        assert (pixels.dtype.name, pixels.flags.c_contiguous) == ("uint8", True)

    def test_reused_buffer(self) -> None:
        decoder = decode.make("simplejpeg", reuse=True)
        large = decoder(making.jpeg(200, 100, seed=1))
        data = making.jpeg(100, 80, seed=2)
        small = decoder(data)
        assert np.shares_memory(large, small)
        np.testing.assert_array_equal(small, decode.make("simplejpeg")(data))

    def test_a_header_parsed_before(self, monkeypatch: pytest.MonkeyPatch) -> None:
        data = making.jpeg(500, 300)
        expected = decode.make("simplejpeg", scales=True)(data, 4)
        monkeypatch.setattr("simplejpeg.decode_jpeg_header", None)
        decoder = decode.make("simplejpeg", scales=True, reuse=True)
        np.testing.assert_array_equal(decoder(data, 4, (500, 300)), expected)
        with pytest.raises(ImageError, match="buffer is too small"):
            decode.make("simplejpeg", scales=True, reuse=True)(data, 1, (50, 30))
        with pytest.raises(ImageError, match="500 × 300 px were decoded"):
            extent(decoder(data, 8, (5000, 3000)).shape[:2], (3000, 5000))

    @pytest.mark.parametrize(("scale", "height"), [(1, 300), (4, 75)])
    @pytest.mark.parametrize("name", SCALING)
    def test_damage_is_an_error(self, name: str, scale: int, height: int) -> None:
        decoder = decode.make(name, scales=True, reuse=True)
        with pytest.raises(ImageError, match="decode"):
            decoder(JPEG[: len(JPEG) // 2], scale)
        assert decoder(JPEG, scale).shape[0] == height
