"""How large a batch is, when it starts, and how many messages are held: simulated devices."""

from collections.abc import Callable

import pytest

from wallclock.service.batching import BatchPolicy
from wallclock.service.leases import Bound


def settle(most: int, step_s: Callable[[int], float], steps: int = 350) -> BatchPolicy:
    """The policy after full batches on a device whose step time is a function of the rows."""
    policy = BatchPolicy(most, 0.02)
    for _ in range(steps):
        policy.observe(policy.size, step_s(policy.size))
    return policy


@pytest.mark.parametrize(
    ("step_s", "size"),
    [
        (lambda n: 0.01 * n, 1),  # a CPU: rows cost what they cost
        (lambda n: 0.02 + 0.0001 * n, 48),  # launches dominate: up to the limit
        (lambda n: 0.02 if n <= 8 else 0.0025 * n, 8),  # full at 8
        (lambda n: 0.0, 48),
    ],
)
def test_grows_while_throughput_rises(step_s: Callable[[int], float], size: int) -> None:
    assert settle(48, step_s).size == size


def sizes_of_steps(policy: BatchPolicy, step_s: Callable[[int], float], steps: int) -> list[int]:
    """The size of each of so many full batches."""
    sizes = []
    for _ in range(steps):
        sizes.append(policy.size)
        policy.observe(policy.size, step_s(policy.size))
    return sizes


def test_a_size_that_did_not_pay_is_tried_again_after_a_hundred_steps() -> None:
    taken = sizes_of_steps(BatchPolicy(64, 0.02), lambda n: 0.01 * n, 210)
    expected = [1] * 3 + [2] * 3 + [1] * 96 + [2] * 3 + [1] * 96 + [2] * 3 + [1] * 6
    assert taken == expected


@pytest.mark.parametrize(
    ("waiting", "waited_s", "more", "taken"),
    [
        (4, 0.0, True, 4),
        (9, 0.0, True, 4),
        (9, 9.0, False, 4),
        (3, 0.0, True, 0),
        (3, 0.0199, True, 0),
        (3, 0.02, True, 3),
        (3, 0.0, False, 3),
        (1, 0.0, True, 0),
        (1, 0.5, True, 1),
        (0, 0.0, False, 0),
    ],
)
def test_what_starts_now(waiting: int, waited_s: float, more: bool, taken: int) -> None:
    policy = BatchPolicy(4, 0.02)
    sizes_of_steps(policy, lambda n: 0.02, 9)
    assert policy.size == 4
    assert policy.take(waiting, waited_s, more) == taken


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
