"""Normalizing, against plain float64 arithmetic."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from wallclock.recipe import IMAGENET, IMAGENET_MEAN, IMAGENET_STD
from wallclock.stages import normalize
from wallclock.stages.pixels import PixelArray

IMAGES = hnp.arrays(np.uint8, st.tuples(st.integers(1, 12), st.integers(1, 12), st.just(3)))
to_float_chw = normalize.make(*IMAGENET)


def oracle(pixels: PixelArray) -> Any:
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return ((pixels.astype(np.float64) / 255 - mean) / std).transpose(2, 0, 1)


@given(IMAGES)
def test_against_float64(pixels: PixelArray) -> None:
    before = pixels.copy()
    floats = to_float_chw(pixels)
    assert floats.dtype == np.float32
    assert floats.flags.c_contiguous
    assert floats.shape == (3, *pixels.shape[:2])
    np.testing.assert_allclose(floats, oracle(pixels), rtol=0, atol=2e-6)
    np.testing.assert_array_equal(pixels, before)


def test_every_level_of_every_channel() -> None:
    levels = np.arange(256, dtype=np.uint8)[:, None, None].repeat(3, axis=2)
    np.testing.assert_allclose(to_float_chw(levels), oracle(levels), rtol=0, atol=2e-6)


def test_constants_are_dinov2s() -> None:
    assert IMAGENET_MEAN == (0.485, 0.456, 0.406)
    assert IMAGENET_STD == (0.229, 0.224, 0.225)


@given(IMAGES, st.sampled_from([np.float32, np.float16, np.uint16]))
def test_looked_up_values_are_the_computed_ones(pixels: PixelArray, dtype: Any) -> None:
    computed = np.empty((3, *pixels.shape[:2]), dtype)
    normalize.store(to_float_chw(pixels), computed)
    looked_up = np.zeros_like(computed)
    normalize.make_lookup(*IMAGENET)(pixels, looked_up)
    np.testing.assert_array_equal(looked_up, computed)


def test_lookup_of_one_channel_and_of_a_view() -> None:
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)[::-1, ::2, :1]
    row = np.empty((1, 4, 2), np.float32)
    normalize.make_lookup((0.5,), (0.25,))(pixels, row)
    np.testing.assert_array_equal(row, normalize.make((0.5,), (0.25,))(pixels))
