"""A queue of finite depth: exact without variance; with it, shallow queues cost throughput."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallclock.predict import queueing
from wallclock.predict.queueing import simulate


@settings(max_examples=40)
@given(st.floats(0.1, 2), st.floats(0.1, 2), st.integers(1, 8), st.integers(1, 4))
def test_without_variance_the_slower_side_sets_the_pace(
    load: float, step: float, workers: int, depth: int
) -> None:
    expected = min(workers / load, 1 / step)
    assert simulate(load, step, workers, depth) == pytest.approx(expected)
    recursion = simulate(load, step, workers, depth, 1e-9, 1e-9)
    assert recursion == pytest.approx(expected, rel=0.02)


def test_variance_costs_most_at_the_knee_and_depth_buys_it_back() -> None:
    at_the_knee = [simulate(1.0, 1.0, 1, depth, 0.5, 0.5) for depth in (1, 2, 4, 16)]
    assert at_the_knee == sorted(at_the_knee)
    assert at_the_knee[0] < 0.8
    assert at_the_knee[-1] > 0.9
    far_away = simulate(1.0, 0.2, 1, 2, 0.5, 0.5)
    assert far_away == pytest.approx(1.0, rel=0.03)


def test_the_deep_queue_of_one_worker_is_lindleys() -> None:
    """Lindley's recursion, W' = max(0, W + S - T), on the same draws: the same departures."""
    count = 600
    load, step = 1.0, 0.8
    rng = random.Random(3)
    loads, steps = (queueing._draw(rng, mean, 0.6, count) for mean in (load, step))
    arrival, wait = 0.0, 0.0
    departures = []
    for i in range(count):
        arrival += loads[i]
        if i:
            wait = max(0.0, wait + steps[i - 1] - loads[i])
        departures.append(arrival + wait + steps[i])
    expected = (count - 1 - count // 5) / (departures[-1] - departures[count // 5])
    assert simulate(load, step, 1, 10_000, 0.6, 0.6, seed=3) == pytest.approx(expected)


def test_the_same_seed_draws_the_same() -> None:
    assert simulate(1, 1, 2, 2, 0.4, 0.4, seed=1) == simulate(1, 1, 2, 2, 0.4, 0.4, seed=1)
    assert simulate(1, 1, 1, 2, 0.4, 0.4, seed=1) != simulate(1, 1, 1, 2, 0.4, 0.4, seed=2)
