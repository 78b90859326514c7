"""Four decoders, one answer: the same pixels for what is sound, an ImageError for what is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests import making
from tests.conftest import ROOT
from wallclock import native, provenance
from wallclock.corpus.validate import validate
from wallclock.errors import ImageError, Unavailable, UserError
from wallclock.spec import Limits
from wallclock.stages import decode
from wallclock.stages.pixels import Pixels

#: Builds of libjpeg-turbo differ in the last bit of some SIMD paths.
CLOSE = 2


@pytest.fixture(scope="module")
def decoders() -> dict[str, decode.Decode]:
    found = {}
    for name in decode.DECODERS:
        try:
            found[name] = decode.make(name)
        except Unavailable as error:
            pytest.skip(f"{name}: {error}")
    return found


def apart(one: Pixels, other: Pixels) -> int:
    assert one.shape == other.shape
    return int(np.abs(one.astype(np.int16) - other.astype(np.int16)).max())


def agree(data: bytes, decoders: dict[str, decode.Decode]) -> Pixels:
    """Decode by all, compare with Pillow's, return the pixels."""
    reference = decoders["pil"](data)
    for name, decoder in decoders.items():
        pixels = decoder(data)
        assert pixels.dtype == np.uint8
        assert pixels.flags.c_contiguous
        assert apart(pixels, reference) <= CLOSE, name
    return reference


def test_the_paper_has_four() -> None:
    assert (
        set(decode.DECODERS)
        == set(decode.LIBRARY_OF)
        == {"pil", "opencv", "turbojpeg", "simplejpeg"}
    )


def test_on_real_photos_all_agree(photos: list[Path], decoders: dict[str, decode.Decode]) -> None:
    for path in photos[::3]:
        agree(path.read_bytes(), decoders)


@pytest.mark.filterwarnings(
    "ignore:Image appears to be a malformed MPO"
)  # which it is, and still a JPEG
def test_on_odd_files_that_decode_all_agree(
    torture: list[tuple[Path, str]], decoders: dict[str, decode.Decode]
) -> None:
    for path, expected in torture:
        if expected == "decodes":
            data = path.read_bytes()
            header = validate(data, Limits())
            pixels = agree(data, decoders) if header.decodable_by_all else decode.decode_other(data)
            assert pixels.shape == (header.height, header.width, 3), path.name


@settings(max_examples=60, deadline=None)
@given(
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    quality=st.integers(1, 100),
    subsampling=st.sampled_from(["4:4:4", "4:2:2", "4:2:0"]),
    progressive=st.booleans(),
    mode=st.sampled_from(["RGB", "L"]),
    seed=st.integers(0, 99),
)
def test_on_any_jpeg_all_agree(
    decoders: dict[str, decode.Decode],
    size: tuple[int, int],
    quality: int,
    subsampling: str,
    progressive: bool,
    mode: str,
    seed: int,
) -> None:
    options: dict[str, Any] = {"quality": quality, "progressive": progressive} | (
        {"subsampling": subsampling} if mode == "RGB" else {}
    )
    pixels = agree(making.jpeg(*size, seed=seed, mode=mode, **options), decoders)
    assert pixels.shape == (size[1], size[0], 3)


@pytest.mark.parametrize("name", decode.DECODERS)
def test_red_is_red(name: str, decoders: dict[str, decode.Decode]) -> None:
    red = np.zeros((16, 16, 3), np.uint8)
    red[..., 0] = 255
    pixels = decoders[name](making.encode(red, "JPEG", quality=95))
    assert apart(pixels, red) <= 3


@pytest.mark.parametrize("name", decode.DECODERS)
def test_gray_becomes_rgb(name: str, decoders: dict[str, decode.Decode]) -> None:
    pixels = decoders[name](making.jpeg(mode="L"))
    assert pixels.shape == (48, 64, 3)
    assert apart(pixels[..., :1].repeat(3, axis=2), pixels) == 0


@pytest.mark.parametrize("orientation", range(1, 9))
def test_nobody_turns_the_picture(orientation: int, decoders: dict[str, decode.Decode]) -> None:
    upright = agree(making.jpeg(), decoders)
    assert apart(agree(making.oriented(orientation), decoders), upright) == 0


def test_what_is_behind_the_end_changes_nothing(decoders: dict[str, decode.Decode]) -> None:
    data = making.jpeg()
    assert apart(agree(data + bytes(range(256)), decoders), agree(data, decoders)) == 0


@pytest.mark.parametrize("per_cent", [10, 50, 99])
@pytest.mark.parametrize("name", ["pil", "turbojpeg", "simplejpeg"])
def test_a_truncated_file_is_an_image_error(
    name: str, per_cent: int, decoders: dict[str, decode.Decode]
) -> None:
    data = making.jpeg(400, 300)
    with pytest.raises(ImageError) as caught:
        decoders[name](data[: len(data) * per_cent // 100])
    assert caught.value.stage == "decode"


@pytest.mark.parametrize("name", ["turbojpeg", "simplejpeg"])
def test_a_warning_of_libjpeg_turbo_is_an_image_error(
    name: str, decoders: dict[str, decode.Decode]
) -> None:
    data = making.jpeg(400, 300)
    middle = len(data) // 2
    with pytest.raises(ImageError, match=r"Corrupt|extraneous|premature"):
        decoders[name](data[:middle] + bytes(100) + data[middle + 100 :])


@pytest.mark.parametrize("name", decode.DECODERS)
@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff", b"text", making.jpeg()[:60]])
def test_what_is_no_jpeg_is_an_image_error(
    name: str, data: bytes, decoders: dict[str, decode.Decode]
) -> None:
    with pytest.raises(ImageError) as caught:
        decoders[name](data)
    assert caught.value.stage == "decode"
    assert caught.value.reason


def test_every_vetted_image_is_one_that_all_decode(
    torture: list[tuple[Path, str]], decoders: dict[str, decode.Decode]
) -> None:
    """OpenCV forgives what the others refuse, so the vetting must not: after it there is nothing to forgive."""
    damaged = [path for path, expected in torture if expected.startswith("damaged")]
    assert damaged
    for path in damaged:
        with pytest.raises(ImageError):
            validate(path.read_bytes(), Limits())


class TestOther:
    """PNG, WebP, GIF and CMYK, in every recipe by Pillow."""

    @pytest.mark.parametrize(
        ("kind", "mode", "levels"),
        [
            ("PNG", "RGB", 0),
            ("PNG", "P", 20),
            ("GIF", "P", 20),
            ("WEBP", "RGB", 6),
            ("JPEG", "CMYK", 6),
        ],
    )
    def test_becomes_rgb(self, kind: str, mode: str, levels: float) -> None:
        pixels = decode.decode_other(making.encode(making.picture(), kind, mode))
        assert pixels.dtype == np.uint8
        assert pixels.shape == (48, 64, 3)
        assert np.abs(pixels.astype(float) - making.picture()).mean() <= levels

    @pytest.mark.parametrize("mode", ["L", "1", "LA"])
    def test_gray_of_any_kind_becomes_rgb(self, mode: str) -> None:
        assert decode.decode_other(making.encode(making.picture(), "PNG", mode)).shape == (
            48,
            64,
            3,
        )

    def test_alpha_is_dropped(self) -> None:
        image = Image.fromarray(making.picture())
        image.putalpha(Image.linear_gradient("L").resize(image.size))
        data = making.encode(np.asarray(image), "PNG", "RGBA")
        assert apart(decode.decode_other(data), making.picture()) == 0

    def test_sixteen_bits_become_eight_and_are_not_clipped(self) -> None:
        row = decode.decode_other(making.png_16_bit(width=5))[0, :, 0]
        assert row.tolist() == [0, 63, 127, 191, 255]

    def test_the_first_frame_counts(self) -> None:
        frames = [Image.fromarray(making.picture(seed=seed)) for seed in (1, 2)]
        data = making.encode(
            making.picture(seed=1), "WEBP", save_all=True, append_images=frames[1:], lossless=True
        )
        assert apart(decode.decode_other(data), making.picture(seed=1)) == 0

    def test_damage_is_an_image_error(self) -> None:
        data = making.encode(making.picture(200, 200), "PNG")
        with pytest.raises(ImageError, match="Pillow"):
            decode.decode_other(data[: len(data) // 2])


def test_an_unknown_decoder_is_one_line_with_the_nearest() -> None:
    with pytest.raises(UserError, match="no decoder is called 'turbo'; did you mean turbojpeg"):
        decode.make("turbo")


def test_without_libturbojpeg_the_decoder_is_unavailable_and_says_what_to_type() -> None:
    program = (
        "from wallclock.errors import Unavailable; from wallclock.stages import decode\n"
        "try: decode.make('turbojpeg')\n"
        "except Unavailable as error: print(error)\n"
        "print(decode.make('pil'))"
    )
    environment = {
        **os.environ,
        "WALLCLOCK_LIBTURBOJPEG": "/nonexistent/libturbojpeg.so",
        "PYTHONPATH": str(ROOT / "code"),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert native.INSTALL_HINT in done.stdout.splitlines()[0]


def test_the_versions_of_the_libraries_are_read_from_the_files_that_run() -> None:
    found = native.find_libturbojpeg()
    if found is None:
        pytest.skip(f"libturbojpeg is absent: {native.INSTALL_HINT}")
    version = native.libjpeg_turbo_version(os.path.realpath(found))
    assert [part.isdecimal() for part in version.split(".")] in ([True] * 2, [True] * 3)
    assert native.libjpeg_turbo_version(sys.executable) == "unknown"
    assert native.libjpeg_turbo_version("/nonexistent") == "unknown"


@pytest.mark.skipif(bool(provenance.gpus()), reason="there is a GPU")
def test_nvjpeg_is_unavailable_where_it_is_not() -> None:
    with pytest.raises(Unavailable, match=r"nvJPEG|torchvision"):
        decode.make("nvjpeg")


def test_what_the_gpu_decodes_comes_back_as_any_picture() -> None:
    """A mock model for torchvision: the same bytes through Pillow, planes first."""
    import torch

    def decode_jpeg(data: torch.Tensor) -> torch.Tensor:
        if len(data) < 100:
            raise RuntimeError("image decoding failed\nat frame 0")
        return torch.from_numpy(decode.make("simplejpeg")(data.numpy().tobytes())).permute(2, 0, 1)

    decoder = decode.bind_nvjpeg(decode_jpeg)
    data = making.jpeg(50, 30)
    np.testing.assert_array_equal(decoder(data), decode.make("simplejpeg")(data))
    assert decoder(data).flags.c_contiguous
    with pytest.raises(ImageError, match=r"nvJPEG: image decoding failed$"):
        decoder(data[:50])


@pytest.mark.cuda
def test_the_gpu_decodes_pillows_pixels_but_for_rounding() -> None:
    try:
        decoder = decode.make("nvjpeg")
    except Unavailable as error:
        pytest.skip(str(error))
    data = making.jpeg(640, 480, quality=92, subsampling=0)
    assert apart(decoder(data), decode.make("pil")(data)) <= 4
