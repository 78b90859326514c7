"""Medians, quantiles and cosine, against the standard library's and by their laws."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measures import median, quantile
from wallclock.summary import cosine, misplaced, unit_length

NUMBERS = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40)


@given(NUMBERS)
def test_median(values: list[float]) -> None:
    assert median(values) == pytest.approx(statistics.median(values), rel=1e-12, abs=1e-6)


def test_quantile_interpolates_and_refuses_no_values() -> None:
    assert quantile([1, 2, 3, 4], 0.9) == pytest.approx(3.7)
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


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
