"""How large a batch is and when it starts: simulated devices, no clock."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_follows_a_device_that_changes() -> None:
    policy = settle(64, lambda n: 0.01 * n)
    for _ in range(350):
        policy.observe(policy.size, 0.02)
    assert policy.size == 64


def test_one_slow_step_changes_nothing() -> None:
    policy = BatchPolicy(64, 0.02)
    for number in range(300):
        policy.observe(policy.size, 0.02 + (1 if number % 3 == 0 else 0))
    assert policy.size == 64


@settings(max_examples=40)
@given(
    st.integers(1, 300),
    st.lists(st.tuples(st.integers(1, 300), st.floats(0, 10)), max_size=30),
    st.integers(1, 1000),
    st.floats(0, 1),
    st.booleans(),
)
def test_take(
    most: int, steps: list[tuple[int, float]], waiting: int, waited_s: float, more: bool
) -> None:
    """Never more than wait, or than the most; nothing only while waiting may bring others."""
    policy = BatchPolicy(most, 0.5)
    for step in steps:
        policy.observe(*step)
    n = policy.take(waiting, waited_s, more)
    assert 0 <= n <= min(waiting, policy.size) <= most
    assert (n == 0) == (waiting < policy.size and more and waited_s < 0.5)
    assert n in (0, policy.size, waiting)
