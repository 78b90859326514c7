"""DCT-scaled decoding: never below what is asked for, the same in every library, damage still an error."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import making
from wallclock.errors import ImageError, Unavailable
from wallclock.stages import decode, resize
from wallclock.stages.decode import SCALING_DECODERS, Scaling
from wallclock.summary import psnr_db


@given(
    width=st.integers(1, 9000),
    height=st.integers(1, 9000),
    target=st.integers(1, 600),
    margin=st.floats(1, 5),
)
def test_the_smallest_scale_that_is_large_enough(
    width: int, height: int, target: int, margin: float
) -> None:
    n = Scaling(target, margin).denominator(width, height)
    assert n in (1, 2, 4, 8)
    if n > 1:
        assert min(-(-width // n), -(-height // n)) >= margin * target
    if n < 8:
        assert min(-(-width // (2 * n)), -(-height // (2 * n))) < margin * target


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("name", SCALING_DECODERS)
@settings(max_examples=12, deadline=None)
@given(
    width=st.integers(1, 700),
    height=st.integers(1, 700),
    progressive=st.booleans(),
    mode=st.sampled_from(["RGB", "L"]),
    subsampling=st.sampled_from([0, 1, 2]),
)
def test_the_scale_asked_for_is_the_scale_that_comes(
    name: str, reuse: bool, width: int, height: int, progressive: bool, mode: str, subsampling: int
) -> None:
    data = making.jpeg(width, height, mode=mode, progressive=progressive, subsampling=subsampling)
    scaling = Scaling(40, 1.5)
    n = scaling.denominator(width, height)
    try:
        pixels = decode.make(name, scaling, reuse=reuse)(data)
    except Unavailable as error:
        pytest.skip(str(error))
    assert pixels.shape == (-(-height // n), -(-width // n), 3)
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous


def test_a_decoder_with_memory_of_its_own_uses_it_again() -> None:
    decoder = decode.make("simplejpeg", reuse=True)
    large = decoder(making.jpeg(200, 100, seed=1))
    small = decoder(making.jpeg(100, 80, seed=2))
    assert np.shares_memory(large, small)
    np.testing.assert_array_equal(small, decode.make("simplejpeg")(making.jpeg(100, 80, seed=2)))


@pytest.mark.parametrize("name", SCALING_DECODERS)
def test_damage_is_an_error_at_any_scale(name: str) -> None:
    data = making.jpeg(900, 700, quality=95)
    for scaling in (None, Scaling(100, 1.0)):
        try:
            decoder = decode.make(name, scaling, reuse=True)
        except Unavailable as error:
            pytest.skip(str(error))
        with pytest.raises(ImageError, match="decode"):
            decoder(data[: len(data) // 2])
        assert decoder(data).shape[0] in (700, 175)


def test_opencv_cannot() -> None:
    with pytest.raises(Unavailable, match="simplejpeg, turbojpeg, pil"):
        decode.make("opencv", Scaling(224, 2.0))


def test_scaled_then_antialiased_is_nearer_to_pillow_than_area_of_the_full_picture() -> None:
    noise = np.random.default_rng(0).integers(-30, 30, (1600, 2000, 3))
    photo = np.clip(making.picture(2000, 1600).astype(int) + noise, 0, 255).astype(np.uint8)
    data = making.encode(photo, quality=92)
    full = decode.make("simplejpeg")(data)
    reference = resize.make("pil", "bilinear", 224).resize(full)
    area = psnr_db(resize.make("opencv", "area", 224).resize(full), reference)
    scaled = decode.make("simplejpeg", Scaling(224, 1.25))(data)
    assert scaled.shape == (400, 500, 3)
    assert psnr_db(resize.make("torch", "bilinear", 224).resize(scaled), reference) >= area - 1.0


@pytest.mark.parametrize("resizer", ["torch", "pil"])
def test_a_size_that_eight_does_not_divide_is_not_shifted(resizer: str) -> None:
    """1873 px at 1/4 are 468.25 px in an array of 469: taken for 469, the picture would be squeezed."""
    noise = np.random.default_rng(0).integers(-60, 60, (1873, 1873, 3))
    data = making.encode(
        np.clip(making.picture(1873, 1873).astype(int) + noise, 0, 255).astype(np.uint8), quality=92
    )
    reference = resize.make("pil", "bilinear", 224).resize(decode.make("simplejpeg")(data))
    scaled = decode.make("simplejpeg", Scaling(224, 1.25))(data)
    assert scaled.shape == (469, 469, 3)
    make = resize.make(resizer, "bilinear", 224)
    exact, squeezed = make.resize(scaled, (1873, 1873)), make.resize(scaled)
    assert psnr_db(exact, reference) > psnr_db(squeezed, reference) + 3


def test_a_picture_of_another_size_than_listed_is_refused() -> None:
    with pytest.raises(ImageError, match="listed with 640 × 480"):
        resize.make("torch", "bilinear", 224).resize(making.picture(300, 300), (480, 640))
