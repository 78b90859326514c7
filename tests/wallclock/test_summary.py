"""Medians, quantiles, PSNR and cosine, against the standard library's and by their laws."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallclock.summary import (
    PSNR_CEILING_DB,
    cosine,
    median,
    misplaced,
    psnr_db,
    quantile,
    unit_length,
)

NUMBERS = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40)


@given(NUMBERS)
def test_median(values: list[float]) -> None:
    assert median(values) == pytest.approx(statistics.median(values), rel=1e-12, abs=1e-6)


@given(NUMBERS, st.floats(0, 1))
def test_quantile_splits_the_values(values: list[float], q: float) -> None:
    cut = quantile(values, q)
    slack = 1e-6
    last = len(values) - 1
    assert min(values) <= cut <= max(values)
    assert sum(value <= cut + slack for value in values) >= math.floor(q * last) + 1
    assert sum(value >= cut - slack for value in values) >= len(values) - math.ceil(q * last)


def test_quantile_interpolates_and_refuses_no_values() -> None:
    assert quantile([1, 2, 3, 4], 0.9) == pytest.approx(3.7)
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


def test_psnr_of_known_images() -> None:
    black = np.zeros((4, 4, 3), np.uint8)
    assert psnr_db(black, black) == PSNR_CEILING_DB
    assert psnr_db(black, black + np.uint8(255)) == pytest.approx(0)
    assert psnr_db(black + np.uint8(1), black) == pytest.approx(20 * math.log10(255))
    one_off = black.copy()
    one_off[0, 0, 0] = 200  # no wrap-around below zero, either way round
    expected = 10 * math.log10(255**2 / (200**2 / 48))
    assert psnr_db(one_off, black) == pytest.approx(expected)
    assert psnr_db(black, one_off) == pytest.approx(expected)


def test_psnr_refuses_two_shapes() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        psnr_db(np.zeros((2, 2, 3), np.uint8), np.zeros((3, 2, 3), np.uint8))


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100))
def test_cosine_ignores_length(seed: int, length: float) -> None:
    a = np.random.default_rng(seed).normal(size=(3, 8)).astype(np.float32)
    np.testing.assert_allclose(cosine(a, a * np.float32(length)), 1, atol=1e-6)
    np.testing.assert_allclose(cosine(a, -a), -1, atol=1e-6)


def test_cosine_is_row_by_row() -> None:
    a = np.array([[1, 0], [1, 0], [1, 1], [0, 0], [0, 0]], np.float32)
    b = np.array([[0, 3], [2, 0], [1, 0], [0, 1], [0, 0]], np.float32)
    np.testing.assert_allclose(cosine(a, b), [0, 1, math.sqrt(0.5), 0, 1], atol=1e-12)


def test_swapped_rows_are_misplaced_and_noise_is_not() -> None:
    rng = np.random.default_rng(0)
    a = unit_length(rng.standard_normal((20, 16), np.float32))
    rows = np.arange(20)
    noisy = unit_length(a + np.float32(0.01) * rng.standard_normal(a.shape, np.float32))
    assert not list(misplaced(a, noisy, rows, float(np.median(cosine(a, noisy)))))
    b = a.copy()
    b[[3, 8]] = b[[8, 3]]
    assert list(misplaced(a, b, rows, 1.0)) == [(3, 8), (8, 3)]
    assert list(misplaced(a, b, rows[5:], 1.0)) == [(8, 3)]
    assert not list(misplaced(a, b, rows, -1.0)), "all vectors differ more than these two"
