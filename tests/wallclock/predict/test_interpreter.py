"""The interpreter's lock: how long an image holds it."""

import pytest

from wallclock.predict.interpreter import locked_s


@pytest.mark.parametrize(("load_ms", "locked_us"), [(0.25, 75), (4.0, 150), (0.0, 0), (0.05, 50)])
def test_seconds_under_the_lock(load_ms: float, locked_us: float) -> None:
    """As measured: 60 to 75 µs of a 256 px image of 0.25 ms, 50 to 200 of an original of 4 ms."""
    assert locked_s(load_ms / 1e3) == pytest.approx(locked_us / 1e6)


def test_a_negative_time_is_refused() -> None:
    with pytest.raises(ValueError, match="load_s=-1"):
        locked_s(-1)
