"""Three resizers: shapes, names, and who antialiases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import making
from wallclock.errors import UserError
from wallclock.stages import resize
from wallclock.stages.resize import _OPENCV, _PILLOW, _TORCH
from wallclock.summary import psnr_db

CHOICES = [("pil", name) for name in _PILLOW] + [("opencv", name) for name in _OPENCV]
CHOICES += [("torch", name) for name in _TORCH]


@pytest.mark.parametrize(("name", "interpolation"), CHOICES)
@settings(max_examples=15, deadline=None)
@given(width=st.integers(1, 400), height=st.integers(1, 400), size=st.integers(1, 256))
def test_any_picture_becomes_the_square_asked_for(
    name: str, interpolation: str, width: int, height: int, size: int
) -> None:
    pixels = making.picture(width, height)
    before = pixels.copy()
    resized = resize.make(name, interpolation, size).resize(pixels)
    assert resized.shape == (size, size, 3)
    assert resized.dtype == np.uint8
    np.testing.assert_array_equal(pixels, before)


@pytest.mark.parametrize(("name", "interpolation"), CHOICES)
def test_a_flat_colour_stays_that_colour(name: str, interpolation: str) -> None:
    flat = np.empty((300, 500, 3), np.uint8)
    flat[:] = (200, 30, 90)
    resized = resize.make(name, interpolation, 224).resize(flat)
    assert np.abs(resized.astype(int) - (200, 30, 90)).max() <= 1


def test_a_read_only_picture_will_do() -> None:
    """Pillow's arrays are read-only views."""
    pixels = making.picture(300, 200)
    pixels.flags.writeable = False
    for name, interpolation in CHOICES:
        resize.make(name, interpolation, 64).resize(pixels)


def noise() -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (1000, 1000, 3), dtype=np.uint8)


def test_fine_texture_averages_out_only_where_the_resizer_antialiases() -> None:
    """What the paper leaves out: OpenCV's linear resize samples, it does not average."""
    spread = {choice: float(resize.make(*choice, 100).resize(noise()).std()) for choice in CHOICES}
    averaging = [
        spread[choice] for choice in (("pil", "box"), ("pil", "bilinear"), ("opencv", "area"))
    ]
    sampling = [spread["opencv", name] for name in ("nearest", "linear", "cubic", "lanczos")]
    assert max(averaging) * 2 < min(sampling)


def test_area_is_nearer_to_pillows_picture_than_linear() -> None:
    photo = making.picture(1600, 1200).astype(np.int16)
    photo = np.clip(photo + np.random.default_rng(0).integers(-40, 40, photo.shape), 0, 255).astype(
        np.uint8
    )
    reference = resize.make("pil", "bilinear", 224).resize(photo)
    decibels = {
        name: psnr_db(resize.make("opencv", name, 224).resize(photo), reference)
        for name in ("linear", "area")
    }
    assert decibels["area"] > decibels["linear"] + 6


@pytest.mark.parametrize(
    ("name", "interpolation", "words"),
    [
        ("pill", "bilinear", "no resizer is called 'pill'; did you mean pil"),
        (
            "opencv",
            "liner",
            "no interpolation of resizer=opencv is called 'liner'; did you mean linear",
        ),
        ("pil", "billinear", "did you mean bilinear"),
        ("opencv", "bilinear", "all|valid"),
    ],
)
def test_unknown_names_get_the_nearest(name: str, interpolation: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        resize.make(name, interpolation, 224)
    assert "\n" not in str(caught.value)


@settings(max_examples=25, deadline=None)
@given(width=st.integers(1, 900), height=st.integers(1, 900), size=st.integers(1, 256))
def test_torchs_filter_is_pillows_but_for_rounding(width: int, height: int, size: int) -> None:
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
    ours, pillows = (
        resize.make(name, "bilinear", size).resize(pixels) for name in ("torch", "pil")
    )
    assert np.abs(ours.astype(int) - pillows).max() <= 2


@pytest.mark.parametrize(("name", "interpolation"), CHOICES)
def test_a_row_of_a_batch_takes_what_a_picture_of_its_own_would(
    name: str, interpolation: str
) -> None:
    pixels, resizer = making.picture(300, 200), resize.make(name, interpolation, 50)
    batch = np.full((3, 50, 50, 3), 7, np.uint8)
    resizer.place(pixels, resizer.prepare(batch[1]))
    np.testing.assert_array_equal(batch[1], resizer.resize(pixels))
    assert (batch[[0, 2]] == 7).all()
