"""Costs and queues: what predictions are made of."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.pipeline_model import queueing
from harness.pipeline_model.costs import Machine, StageCosts, StepTime
from harness.pipeline_model.queueing import simulate

# --- costs ----------------------------------------------------------------------------------------


@given(
    st.floats(0, 1),
    st.floats(1e-6, 1),
    st.lists(st.integers(1, 1024), min_size=2, max_size=8, unique=True),
)
def test_points_on_a_line_give_the_line(startup: float, per_image: float, sizes: list[int]) -> None:
    step = StepTime.fit([(size, startup + per_image * size) for size in sizes])
    for size in (1, 77, 1024):
        assert step.batch_s(size) == pytest.approx(
            startup + per_image * size, rel=1e-4, abs=1e-4 * startup
        )


@given(st.lists(st.tuples(st.integers(1, 512), st.floats(1e-6, 10)), min_size=1, max_size=8))
def test_a_fit_is_never_negative(points: list[tuple[int, float]]) -> None:
    step = StepTime.fit(points)
    assert step.fixed_s >= 0
    assert step.per_image_s >= 0
    assert step.batch_s(1) > 0


def test_costs_of_a_serial_pass() -> None:
    ms = {"read": [1, 1], "decode": [5, 7], "forward": [100], "assemble": [4], "wall": [900]}
    samples = {name: [time * 1_000_000 for time in times] for name, times in ms.items()}
    costs = StageCosts.from_samples(samples, 2)
    assert (costs.read_s, costs.decode_s, costs.assemble_s) == (0.001, 0.006, 0.002)
    assert costs.load_s == pytest.approx(0.009)
    assert costs.variation == pytest.approx(1 / 7)
    with pytest.raises(ValueError, match="n_images"):
        StageCosts.from_samples(samples, 0)


def test_contention_is_interpolated_and_flat_beyond() -> None:
    machine = Machine(4, contention=((4, 2.0), (1, 1.0), (8, 2.4)))
    assert [machine.slowdown(busy) for busy in (1, 2, 4, 6, 8, 100)] == pytest.approx(
        [1, 4 / 3, 2, 2.2, 2.4, 2.4]
    )
    assert Machine(4).slowdown(9) == 1


# --- queueing -------------------------------------------------------------------------------------


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
