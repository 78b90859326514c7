"""A pipeline: the slowest sets the pace, sums where nothing overlaps, cores are used once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallclock.predict import (
    BatchTransfer,
    JobSetup,
    Machine,
    StageCosts,
    StepTime,
    amdahl,
    crossover_batch,
    predict,
    workers_to_saturate,
)

#: 2 ms of loading an image; a step of 8 ms and 1 ms an image.
COSTS = StageCosts(read_s=1e-4, decode_s=1e-3, resize_s=5e-4, normalize_s=3e-4, assemble_s=1e-4)
STEP = StepTime(8e-3, 1e-3)
BIG = Machine(cores=64)
SECONDS = st.floats(1e-5, 1e-1)


def rate(
    workers: int = 4, batch_size: int = 8, machine: Machine = BIG, costs: StageCosts = COSTS
) -> float:
    return predict(costs, STEP, machine, JobSetup(workers, batch_size)).img_per_s


def test_without_workers_everything_adds_up() -> None:
    expected = predict(COSTS, STEP, BIG, JobSetup(0, 8))
    assert expected.img_per_s == pytest.approx(1 / (2e-3 + 2e-3))
    assert expected.accelerator_utilization == pytest.approx(0.5)
    assert expected.accelerator_bound == pytest.approx(amdahl(0.5))
    assert predict(COSTS, STEP, BIG, JobSetup(4, 8, "serial")) == expected


def test_with_workers_the_slowest_sets_the_pace() -> None:
    assert rate(workers=1, batch_size=64) == pytest.approx(500)
    expected = predict(COSTS, STEP, BIG, JobSetup(8, 8))
    assert expected.img_per_s == pytest.approx(500)
    assert expected.bottleneck == "accelerator"
    assert expected.accelerator_utilization == pytest.approx(1)
    assert expected.supply["transform"] == pytest.approx(4000)
    assert expected.accelerator_bound == pytest.approx(8)
    assert expected.low < expected.img_per_s < expected.high


def test_no_more_loaders_work_than_there_are_cores() -> None:
    assert rate(workers=16, batch_size=256, machine=Machine(1)) == pytest.approx(500)
    assert rate(
        workers=16, batch_size=256, machine=Machine(1, contention=((1, 1.0), (16, 2.0)))
    ) == pytest.approx(250)


def test_a_forward_pass_on_the_loaders_cores() -> None:
    shared = Machine(2, shares_cores=True, forward_cores=2)
    expected = predict(COSTS, StepTime(0, 10e-3), shared, JobSetup(2, 8))
    assert expected.img_per_s == pytest.approx(1 / (10e-3 + 2e-3)), (
        "a loader on one core delays both threads"
    )
    assert expected.bottleneck == "accelerator"
    assert workers_to_saturate(COSTS, StepTime(0, 10e-3), shared, JobSetup(1, 8)) == 1


@pytest.mark.parametrize(
    ("forward_s", "workers", "forward_cores", "expected_s"),
    [
        (1e-3, 2, 2, 2e-3),  # two loaders share the cores while the pass runs twice as long
        (0.5e-3, 2, 2, 1.5e-3),  # both load the rest, on a core each
        (1e-3, 1, 2, 3e-3),  # a single loader works on one core only
        (4e-3, 2, 1, 4e-3),  # the other core is free
        (1.5e-3, 2, 1, 2e-3),  # but for the half millisecond that does not fit on it
    ],
)
def test_loading_concurrent_with_a_forward_pass_shares_its_cores(
    forward_s: float, workers: int, forward_cores: int, expected_s: float
) -> None:
    shared = Machine(2, shares_cores=True, forward_cores=forward_cores)
    expected = predict(COSTS, StepTime(0, forward_s), shared, JobSetup(workers, 8))
    assert 1 / expected.img_per_s == pytest.approx(expected_s)


def test_slow_storage_is_the_bottleneck() -> None:
    slow = Machine(64, storage_bytes_per_s=125e6)
    expected = predict(replace(COSTS, image_bytes=5e6), STEP, slow, JobSetup(8, 64))
    assert expected.img_per_s == pytest.approx(25)
    assert expected.bottleneck == "storage"
    assert workers_to_saturate(replace(COSTS, image_bytes=5e6), STEP, slow, JobSetup(1, 64)) is None
    sequential = predict(replace(COSTS, image_bytes=5e6), STEP, slow, JobSetup(0, 8))
    assert sequential.img_per_s == pytest.approx(1 / (0.04 + 1.9e-3 + 2e-3))
    assert sequential.bottleneck == "storage"


def test_main_process_can_be_the_bottleneck() -> None:
    batch_transfer = BatchTransfer(main=StepTime(5e-3, 1e-4))
    expected = predict(COSTS, StepTime(1e-4), BIG, JobSetup(8, 1), batch_transfer)
    assert expected.img_per_s == pytest.approx(1 / 5.2e-3)
    assert expected.bottleneck == "main"
    slow_link = predict(replace(COSTS, h2d_s=0.01), STEP, BIG, JobSetup(8, 64))
    assert slow_link.bottleneck == "h2d"
    as_threads = predict(COSTS, StepTime(1e-4), BIG, JobSetup(8, 1, "threads"), batch_transfer)
    assert as_threads.img_per_s == pytest.approx(4000), "threads transfer nothing"


def test_a_workers_copy_overlaps_its_loading_while_a_core_is_free() -> None:
    batch_transfer = BatchTransfer(worker=StepTime(0, 1e-3))
    assert predict(
        COSTS, StepTime(1e-4), BIG, JobSetup(1, 8), batch_transfer
    ).img_per_s == pytest.approx(500)
    one = predict(COSTS, StepTime(1e-4), Machine(1), JobSetup(1, 8), batch_transfer)
    assert one.img_per_s == pytest.approx(1 / 3e-3)


def test_crossover_batch() -> None:
    one = crossover_batch(COSTS, STEP, BIG, JobSetup(1, 1))
    assert one == pytest.approx(8)
    assert crossover_batch(COSTS, STEP, BIG, JobSetup(4, 1)) is None
    assert predict(COSTS, STEP, BIG, JobSetup(1, 6)).bottleneck == "accelerator"
    assert predict(COSTS, STEP, BIG, JobSetup(1, 10)).bottleneck == "transform"


def test_workers_to_saturate() -> None:
    assert workers_to_saturate(COSTS, STEP, BIG, JobSetup(1, 64)) == 2
    assert workers_to_saturate(COSTS, STEP, Machine(1), JobSetup(1, 64)) is None


def test_zero_costs_are_not_predicted() -> None:
    with pytest.raises(ValueError, match="nothing sets the pace"):
        predict(StageCosts(), StepTime(), BIG, JobSetup(1, 8))
    for uncertainty in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="uncertainty"):
            predict(COSTS, STEP, BIG, JobSetup(), uncertainty=uncertainty)
    assert predict(StageCosts(), STEP, BIG, JobSetup(1, 8)).accelerator_bound == float("inf")


@settings(deadline=None, max_examples=60)
@given(SECONDS, SECONDS, SECONDS, st.integers(1, 16), st.integers(1, 64), st.integers(1, 32))
def test_laws(
    load: float, startup: float, per_image: float, workers: int, size: int, cores: int
) -> None:
    """More cores or workers never hurt, nothing beats its parts or its accelerator bound."""
    costs, step = StageCosts(decode_s=load, variation=0.3), StepTime(startup, per_image)
    expected = predict(costs, step, Machine(cores), JobSetup(workers, size))
    assert expected.img_per_s <= min(expected.supply.values()) * 1.02
    assert (
        expected.img_per_s
        >= predict(costs, step, Machine(cores), JobSetup(0, size)).img_per_s * 0.7
    )
    assert (
        predict(costs, step, Machine(2 * cores), JobSetup(workers, size)).img_per_s
        >= expected.img_per_s * 0.98
    )
    assert 0 < expected.accelerator_utilization <= 1
    faster = predict(
        costs, StepTime(startup / 50, per_image / 50), Machine(cores), JobSetup(workers, size)
    )
    assert faster.img_per_s <= expected.img_per_s * expected.accelerator_bound * 1.05
