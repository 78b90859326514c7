"""Normalizing and stacking, against plain float64 arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from wallclock.stages.assemble import stack
from wallclock.stages.normalize import MEAN, STD, to_float_chw
from wallclock.stages.pixels import Pixels

PICTURES = hnp.arrays(np.uint8, st.tuples(st.integers(1, 12), st.integers(1, 12), st.just(3)))


def oracle(pixels: Pixels) -> Any:
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return ((pixels.astype(np.float64) / 255 - mean) / std).transpose(2, 0, 1)


@given(PICTURES)
def test_it_is_the_models_normalization(pixels: Pixels) -> None:
    before = pixels.copy()
    found = to_float_chw(pixels)
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    assert found.shape == (3, *pixels.shape[:2])
    np.testing.assert_allclose(found, oracle(pixels), rtol=0, atol=2e-6)
    np.testing.assert_array_equal(pixels, before)


def test_every_level_of_every_channel() -> None:
    levels = np.arange(256, dtype=np.uint8)[:, None, None].repeat(3, axis=2)
    np.testing.assert_allclose(to_float_chw(levels), oracle(levels), rtol=0, atol=2e-6)


def test_the_constants_are_those_of_dinov2() -> None:
    assert MEAN.tolist() == pytest.approx([0.485, 0.456, 0.406])
    assert STD.tolist() == pytest.approx([0.229, 0.224, 0.225])


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6))
def test_a_batch_holds_its_images_in_order(seeds: list[int]) -> None:
    images = [
        np.random.default_rng(seed).normal(size=(3, 4, 5)).astype(np.float32) for seed in seeds
    ]
    batch = stack(images)
    assert batch.shape == (len(images), 3, 4, 5)
    assert batch.flags.c_contiguous
    for row, image in zip(batch, images, strict=True):
        np.testing.assert_array_equal(row, image)
