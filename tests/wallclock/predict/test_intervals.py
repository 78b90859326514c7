"""How far predictions may be off."""

from math import hypot, log, log1p

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallclock.predict.intervals import gain, reach

_RATES = st.lists(st.floats(1, 1e4), min_size=1, max_size=7)
_ERRORS = st.floats(0, 3)


@given(_ERRORS, _ERRORS)
def test_errors_add_up(first: float, second: float) -> None:
    together = reach(first, second)
    assert log(together) == pytest.approx(hypot(log1p(first), log1p(second)))
    assert together >= 1 + max(first, second) - 1e-9
    assert reach(first) == pytest.approx(1 + first)


@given(_RATES, st.floats(0.1, 10), _ERRORS)
def test_a_slow_pass_is_in_both_rates(rates: list[float], factor: float, error: float) -> None:
    """A change that gains the same in each pass has the model's error alone."""
    gained = gain(rates, [factor * rate for rate in rates], error)
    assert gained.speedup == pytest.approx(factor)
    assert gained.low == pytest.approx(factor / (1 + error))
    assert gained.high == pytest.approx(factor * (1 + error))


def test_passes_that_differ_widen_the_interval() -> None:
    gained = gain([100, 100, 100], [110, 120, 180], error=0.0)
    assert (gained.low, gained.speedup, gained.high) == pytest.approx((1.1, 1.2, 1.8))
    assert gained.is_recommended
    assert not gain([100, 100, 100], [90, 120, 180], error=0.0).is_recommended


def test_mistakes_are_errors() -> None:
    with pytest.raises(ValueError, match="no pass"):
        gain([], [])
    with pytest.raises(ValueError, match="longer"):
        gain([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="relative error"):
        reach(-0.1)
