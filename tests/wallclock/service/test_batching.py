"""How large a batch is and when it starts: simulated devices, no clock."""

from collections.abc import Callable

import pytest

from wallclock.service.batching import BatchPolicy


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


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (1, [1]),
        (2, [1, 2]),
        (3, [1, 2, 3]),
        (8, [1, 2, 4, 8]),
        (9, [1, 2, 4, 8, 9]),
        (48, [1, 2, 4, 8, 16, 32, 48]),
        (64, [1, 2, 4, 8, 16, 32, 64]),
    ],
)
def test_sizes_double_up_to_the_most_after_three_steps_each(most: int, sizes: list[int]) -> None:
    taken = sizes_of_steps(BatchPolicy(most, 0.02), lambda n: 0.02, 3 * len(sizes) + 3)
    assert taken == [size for size in sizes for _ in range(3)] + [most] * 3


@pytest.mark.parametrize(
    ("gain", "size"), [(0.9, 1), (1.0, 1), (1.019, 1), (1.021, 2), (1.5, 2), (2.0, 2)]
)
def test_a_larger_batch_has_to_be_two_per_cent_faster(gain: float, size: int) -> None:
    policy = BatchPolicy(2, 0.02)
    sizes_of_steps(policy, lambda n: n / (gain if n == 2 else 1), 6)
    assert policy.size == size


def test_a_size_that_did_not_pay_is_tried_again_after_a_hundred_steps() -> None:
    taken = sizes_of_steps(BatchPolicy(64, 0.02), lambda n: 0.01 * n, 210)
    expected = [1] * 3 + [2] * 3 + [1] * 96 + [2] * 3 + [1] * 96 + [2] * 3 + [1] * 6
    assert taken == expected


def test_the_shortest_of_three_steps_is_the_step_time() -> None:
    """A step of a size that is not aimed at says nothing of it."""
    policy = BatchPolicy(2, 0.02)
    for n, seconds in ((1, 9.0), (1, 1.0), (2, 0.01), (2, 0.01), (2, 0.01), (1, 9.0)):
        assert policy.size == 1
        policy.observe(n, seconds)
    for seconds in (9.0, 9.0, 1.5):
        assert policy.size == 2
        policy.observe(2, seconds)
    assert policy.size == 2  # 2 rows in 1.5 s are faster than 1 row in 1 s
    for _ in range(3):
        policy.observe(2, 2.0)
    assert policy.size == 1


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
