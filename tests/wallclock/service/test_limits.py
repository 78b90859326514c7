"""How many messages may be held: by the rate of a clock that the test turns."""

import pytest

from wallclock.service.leases import Bound


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def finish(bound: Bound, clock: Clock, n: int, seconds: float) -> None:
    """So many messages leave, evenly over these seconds."""
    for _ in range(n):
        clock.now += seconds / n
        bound.finished()


@pytest.mark.parametrize(
    ("least", "most", "rate", "expected"),
    [
        (50, 2000, 0, 50),  # no rate yet
        (50, 2000, 1, 50),  # 30 are fewer than one batch and all connections need
        (50, 2000, 2, 60),
        (50, 2000, 40, 1200),
        (50, 2000, 67, 2000),
        (500, 200, 0, 200),  # never more than the settings allow
        (500, 200, 1, 200),
    ],
)
def test_bound_is_visibility_times_rate_between_its_limits(
    least: int, most: int, rate: int, expected: int
) -> None:
    bound = Bound(30, least, most, Clock())
    bound.rate = rate
    assert bound() == expected


def test_rate_is_a_mean_of_windows_of_a_second_each_half_as_heavy_as_the_next() -> None:
    clock = Clock()
    bound = Bound(30, 20, 2000, clock)
    finish(bound, clock, 7, 0.875)
    assert bound.rate == 0  # the window is not over
    finish(bound, clock, 1, 0.125)
    assert bound.rate == pytest.approx(8)
    finish(bound, clock, 16, 1)
    assert bound.rate == pytest.approx((8 + 16) / 2)
    finish(bound, clock, 1, 2)  # nothing left for two seconds
    assert bound.rate == pytest.approx((12 + 0.5) / 2)
