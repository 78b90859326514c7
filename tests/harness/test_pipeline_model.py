"""A pipeline: the slowest sets the pace, sums where nothing overlaps, cores are used once."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.pipeline_model.costs import BatchTransfer, JobSetup, Machine, StageCosts, StepTime
from harness.pipeline_model.model import Pipeline
from wallclock.predict.intervals import RATE_ERROR, reach
from wallclock.predict.pace import Pace

#: 2 ms of loading an image; a step of 8 ms and 1 ms an image.
COSTS = StageCosts(read_s=1e-4, decode_s=1e-3, resize_s=5e-4, normalize_s=3e-4, assemble_s=1e-4)
STEP = StepTime(8e-3, 1e-3)
BIG = Machine(cores=64)
SHARED = Machine(2, shares_cores=True, forward_cores=2)
ONE_OF_TWO = Machine(2, shares_cores=True, forward_cores=1)
SLOW_DISK = Machine(64, storage_bytes_per_s=125e6)
WAITS = replace(COSTS, wait_s=8e-3)
LARGE = replace(COSTS, image_bytes=5e6)
FAST = StepTime(1e-4)
RECEIVE = BatchTransfer(main=StepTime(5e-3, 1e-4))
SEND = BatchTransfer(worker=StepTime(0, 1e-3))
GPU = Machine(64, gpu=True)
#: 1 ms to the device, 1 in the forward pass, 0.5 back, 0.2 to the sink.
BUS, NETWORK = replace(COSTS, h2d_s=1e-3, d2h_s=5e-4, serialize_s=2e-4), StepTime(0, 1e-3)
SECONDS = st.floats(1e-5, 1e-1)


@pytest.mark.parametrize(
    ("arguments", "seconds", "bottleneck"),
    [
        ((COSTS, STEP, BIG, JobSetup(0, 8)), 2e-3 + 2e-3, "accelerator"),  # a tie
        ((COSTS, STEP, BIG, JobSetup(1, 64)), 2e-3, "transform"),
        ((COSTS, STEP, BIG, JobSetup(8, 8)), 2e-3, "accelerator"),
        # No more loaders work than there are cores, and contention slows them down.
        ((COSTS, STEP, Machine(1), JobSetup(16, 256)), 2e-3, "transform"),
        ((COSTS, STEP, Machine(1, contention=((16, 2.0),)), JobSetup(16, 256)), 4e-3, "transform"),
        # A worker sends while it loads, as long as a core is free.
        ((COSTS, FAST, BIG, JobSetup(1, 8), SEND), 2e-3, "transform"),
        ((COSTS, FAST, Machine(1), JobSetup(1, 8), SEND), 3e-3, "transform"),
        ((COSTS, FAST, BIG, JobSetup(8, 1), RECEIVE), 5.2e-3, "main"),
        # Threads transfer nothing.
        ((COSTS, FAST, BIG, JobSetup(8, 1, "threads"), RECEIVE), 2e-3 / 8, "transform"),
        ((replace(COSTS, h2d_s=0.01), STEP, BIG, JobSetup(8, 64)), 1e-2 + 1.125e-3, "h2d"),
        ((LARGE, STEP, SLOW_DISK, JobSetup(8, 64)), 0.04, "storage"),
        ((LARGE, STEP, SLOW_DISK, JobSetup(0, 8)), 0.04 + 1.9e-3 + 2e-3, "storage"),
        # Loaders that wait for the storage leave their core to others: 8 ms each, of which 2 work.
        ((WAITS, FAST, BIG, JobSetup(4, 64)), 2e-3 + 5e-4, "storage"),
        ((WAITS, FAST, Machine(2), JobSetup(16, 64)), 1e-3, "transform"),
        ((WAITS, FAST, BIG, JobSetup(0, 1)), 1e-2 + 1e-4, "storage"),
        # A loader on one core delays both threads of the forward pass.
        ((COSTS, StepTime(0, 1e-2), SHARED, JobSetup(2, 8)), 1e-2 + 2e-3, "accelerator"),
        # Two loaders share the cores while the pass runs twice as long; then a core each.
        ((COSTS, StepTime(0, 1e-3), SHARED, JobSetup(2, 8)), 2e-3, "accelerator"),
        ((COSTS, StepTime(0, 0.5e-3), SHARED, JobSetup(2, 8)), 1.5e-3, "transform"),
        # A single loader works on one core only.
        ((COSTS, StepTime(0, 1e-3), SHARED, JobSetup(1, 8)), 3e-3, "accelerator"),
        # The other core is free, but for half a millisecond that does not fit on it.
        ((COSTS, StepTime(0, 4e-3), ONE_OF_TWO, JobSetup(2, 8)), 4e-3, "accelerator"),
        ((COSTS, StepTime(0, 1.5e-3), ONE_OF_TWO, JobSetup(2, 8)), 2e-3, "transform"),
        # On a GPU the threads engine has a stream for each stage; the plain loop waits for each.
        ((BUS, NETWORK, GPU, JobSetup(8, 64, "threads")), 1e-3, "accelerator"),
        ((replace(BUS, h2d_s=3e-3), NETWORK, GPU, JobSetup(8, 64, "threads")), 3e-3, "h2d"),
        ((BUS, NETWORK, GPU, JobSetup(8, 64)), 2.7e-3, "accelerator"),
        # There its host spins: 2.7 ms of a core an image, beside 2 of loading. Events that sleep
        # leave 0.2.
        ((BUS, NETWORK, replace(GPU, cores=1), JobSetup(8, 64)), 4.7e-3, "main"),
        ((BUS, NETWORK, replace(GPU, cores=1), JobSetup(8, 64, "threads")), 2.2e-3, "transform"),
    ],
)
def test_seconds_of_an_image(arguments: Any, seconds: float, bottleneck: str) -> None:
    expected = Pipeline(*arguments).predict()
    assert 1 / expected.img_per_s == pytest.approx(seconds)
    assert expected.bottleneck == bottleneck


def test_prediction_with_and_without_workers() -> None:
    expected = Pipeline(COSTS, STEP, BIG, JobSetup(0, 8)).predict()
    assert expected.accelerator_utilization == pytest.approx(0.5)
    assert expected.accelerator_bound == pytest.approx(2), "Amdahl's law"
    assert Pipeline(COSTS, STEP, BIG, JobSetup(4, 8, "serial")).predict() == expected
    expected = Pipeline(COSTS, STEP, BIG, JobSetup(8, 8)).predict()
    assert expected.accelerator_utilization == pytest.approx(1)
    assert expected.supply["transform"] == pytest.approx(4000)
    assert expected.accelerator_bound == pytest.approx(8)
    assert expected.low < expected.img_per_s < expected.high


@pytest.mark.parametrize("setup", [JobSetup(0, 8), JobSetup(1, 64), JobSetup(8, 8)])
def test_the_interval_is_of_earlier_errors_and_of_the_spread(setup: JobSetup) -> None:
    pipeline = Pipeline(COSTS, STEP, BIG, setup)
    rate = pipeline.rate()
    calm, restless = pipeline.predict(), pipeline.predict(spread=0.5)
    assert (calm.low, calm.high) == pytest.approx(
        (rate / (1 + RATE_ERROR), rate * (1 + RATE_ERROR))
    )
    factor = reach(RATE_ERROR, 0.5)
    assert (restless.low, restless.high) == pytest.approx((rate / factor, rate * factor))


def test_workers_beyond_the_cores_lose_nothing_to_variance() -> None:
    """Two loaders in order wait for each other; of four on two cores, another one has the core."""
    varied, two_cores = replace(COSTS, variation=2.0), Machine(2)
    rates = [
        Pipeline(varied, FAST, two_cores, JobSetup(workers, 8)).rate() for workers in (1, 2, 4)
    ]
    assert rates == sorted(rates)
    assert rates[1] < 0.97 * 1000
    assert rates[2] == pytest.approx(1000, rel=0.01)


def test_processes_beyond_the_cores_cost_what_was_measured_of_them() -> None:
    slowed = Machine(2, contention=((1, 1.0), (2, 1.0), (4, 1.25)))
    two, four = (Pipeline(COSTS, FAST, slowed, JobSetup(n, 64)).rate() for n in (2, 4))
    assert two == pytest.approx(1000)
    assert four == pytest.approx(800)


@settings(max_examples=60)
@given(SECONDS, SECONDS, SECONDS, st.integers(1, 16), st.integers(1, 64), st.integers(1, 32))
def test_laws(
    load: float, fixed: float, per_image: float, workers: int, size: int, cores: int
) -> None:
    """More cores or workers never hurt, nothing beats its parts or its accelerator bound."""
    costs, setup = StageCosts(decode_s=load, variation=0.3), JobSetup(workers, size)

    def rate(cores: int = cores, setup: JobSetup = setup, faster: int = 1) -> float:
        step = StepTime(fixed / faster, per_image / faster)
        return Pipeline(costs, step, Machine(cores), setup).rate()

    expected = Pipeline(costs, StepTime(fixed, per_image), Machine(cores), setup).predict()
    assert 0 < expected.accelerator_utilization <= 1
    assert rate() <= min(expected.supply.values()) * 1.02
    assert rate() >= rate(setup=JobSetup(0, size)) * 0.7
    assert rate(cores=2 * cores) >= rate() * 0.98
    assert rate(faster=50) <= rate() * expected.accelerator_bound * 1.05


@pytest.mark.parametrize("shares", [0, 1, 2])
@settings(max_examples=40)
@given(SECONDS, SECONDS, SECONDS, SECONDS, st.integers(0, 8), st.integers(2, 8))
def test_the_products_pace_is_a_case_of_it(
    shares: int, load: float, wait: float, forward: float, main: float, workers: int, cores: int
) -> None:
    """Without variance, storage and streams: where `wallclock trace` and `embed` predict."""
    costs = StageCosts(decode_s=load, wait_s=wait, h2d_s=main / 2, serialize_s=main)
    machine = Machine(cores, shares_cores=shares > 0, forward_cores=max(shares, 1))
    send = BatchTransfer(worker=StepTime(0, wait))
    job = Pipeline(costs, StepTime(0, forward), machine, JobSetup(workers, 1), send)
    pace = Pace(load, forward, cores, workers, shares, wait, wait, main / 2, main)
    assert pace.img_per_s() == pytest.approx(job.rate())


@settings(max_examples=40)
@given(SECONDS, SECONDS, st.integers(1, 8), st.integers(1, 8), st.booleans())
def test_what_limits_is_the_same(
    load: float, forward: float, workers: int, cores: int, on_cpu: bool
) -> None:
    machine = Machine(cores, shares_cores=on_cpu, forward_cores=cores)
    setup = JobSetup(workers, 1, "threads")
    job = Pipeline(StageCosts(decode_s=load), StepTime(0, forward), machine, setup)
    pace = Pace(load, forward, cores, workers, cores if on_cpu else 0)
    assert pace.model_limits == (job.bottleneck() == "accelerator")
