"""A job on many machines: what must hold whatever the inputs are."""

from dataclasses import replace
from math import inf
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.predict.fleet import (
    Feeders,
    Fleet,
    ImageSet,
    Instance,
    Store,
    Timing,
    compare,
    simulate,
)

#: 100 shards of 10 s on one node, of 100 images/s by its GPU; its two cores can do 400.
IMAGES = ImageSet(100_000, 1000, 1e5, 0.004, 0.001)
NODE = Instance(2, 1, (100.0, 100.0), 1e9)
FLEET = Fleet(IMAGES, NODE, 1)
VARIED = Timing(60, 0.2, 5, 1e-5, 1e-6, 100, 0.1, 0, 0.15)


def hours(fleet: Fleet, runs: int = 1) -> float:
    return median(run.hours for run in simulate(fleet, runs))


def test_one_node_without_losses_takes_its_start_and_its_work() -> None:
    assert hours(FLEET) == pytest.approx(1000 / 3600)
    slow = replace(FLEET, timing=Timing(boot_s=60, actor_start_s=5, list_s=1e-3, hop_s=1e-4))
    assert hours(slow) == pytest.approx((60 + 2 * 5 + 100 + 10 + 1000) / 3600)
    (run,) = simulate(slow)
    assert (run.limit, run.losses) == ("GPU", 0)
    assert run.work_s == pytest.approx(1005)


def test_twice_the_nodes_take_half_until_something_binds() -> None:
    alone = [hours(replace(FLEET, nodes=nodes)) for nodes in (1, 2, 4, 25)]
    assert alone == pytest.approx([alone[0] / nodes for nodes in (1, 2, 4, 25)])
    # Of 100 shards, 64 nodes make 36 in a second round.
    assert hours(replace(FLEET, nodes=64)) == pytest.approx(20 / 3600)
    limited = replace(FLEET, store=Store(400, 1))
    assert hours(replace(limited, nodes=8)) == pytest.approx(alone[0] / 4, rel=0.05)


@pytest.mark.parametrize(
    ("changes", "rate", "limit"),
    [
        ({}, 100, "GPU"),
        ({"images": replace(IMAGES, load_s=0.039)}, 50, "CPU"),
        ({"instance": replace(NODE, network_bytes_per_s=5e6)}, 50, "network"),
        ({"store": Store(latency_s=0.1, in_flight=4)}, 40, "GETs in flight"),
        ({"store": Store(gets_per_s=30)}, 30, "GETs of a process"),
        ({"store": Store(gets_per_prefix=20)}, 20, "S3 prefix"),
        ({"timing": Timing(dispatch_per_s=0.01)}, 10, "driver"),
    ],
)
def test_the_slowest_part_limits(changes: dict[str, object], rate: float, limit: str) -> None:
    assert replace(FLEET, **changes).rate() == pytest.approx((rate, limit))  # type: ignore[arg-type]


def test_s3_binds_at_the_computed_number_of_nodes() -> None:
    # A prefix holds ten shards: ten actors share it at most, those of spread shards all prefixes.
    store = Store(gets_per_prefix=550, prefixes=10)
    case = replace(FLEET, store=store)
    assert case.nodes_until("S3 prefix") == 6
    for nodes, limit in ((5, "GPU"), (6, "S3 prefix")):
        assert replace(case, nodes=nodes).rate().limit == limit
    assert replace(case, nodes=500).rate() == (55, "S3 prefix")
    spread = replace(case, store=replace(store, spread=True))
    assert spread.nodes_until("S3 prefix") == 56
    assert (
        replace(case, store=replace(store, gets_per_prefix=1001)).nodes_until("S3 prefix") is None
    )
    # 100 s of listing are more than 1,000 / n from the eleventh node on.
    assert replace(FLEET, timing=Timing(list_s=1e-3)).nodes_until("driver") == 11
    assert FLEET.nodes_until("driver") is None


def test_equal_seeds_give_equal_runs() -> None:
    case = replace(FLEET, nodes=4, timing=replace(VARIED, losses_per_s=1e-3))
    assert simulate(case, 5, seed=1) == simulate(case, 5, seed=1) != simulate(case, 5, seed=2)


def test_the_last_digits_decide_nothing() -> None:
    """Vector units of CPUs round differently; tables must not tell on which CPU they were made."""
    timing = replace(VARIED, losses_per_s=1e-2)
    cases = [
        replace(FLEET, nodes=64, timing=timing, instance=replace(NODE, gpu_rates=(rate, rate)))
        for rate in (100.0, 100.0 + 5e-14)
    ]
    assert cases[0].instance != cases[1].instance
    plain, rounded = ([run.hours for run in simulate(case, 50)] for case in cases)
    assert plain == pytest.approx(rounded, rel=1e-9)


def test_more_losses_never_shorten_the_median() -> None:
    rates = (0, 1e-4, 1e-3, 1e-2)
    cases = [replace(FLEET, nodes=4, timing=replace(VARIED, losses_per_s=rate)) for rate in rates]
    medians = [hours(case, 25) for case in cases]
    assert medians == sorted(medians)
    assert simulate(cases[2])[0].losses > 0


@settings(max_examples=25, deadline=None)
@given(
    nodes=st.integers(1, 40),
    shards=st.integers(1, 60),
    variation=st.floats(0, 1),
    losses=st.sampled_from([0.0, 1e-3]),
)
def test_never_faster_than_its_parts(
    nodes: int, shards: int, variation: float, losses: float
) -> None:
    timing = Timing(shard_variation=variation, losses_per_s=losses, actor_start_s=1)
    case = Fleet(ImageSet(100 * shards, 100), NODE, nodes, timing=timing)
    (run,) = simulate(case)
    assert run.hours > 2 / 3600
    if not variation and not losses:
        rounds = -(-shards // nodes)
        assert run.work_s == pytest.approx(1 + rounds)


def test_cpu_nodes_prepare_what_the_cores_cannot() -> None:
    images = replace(IMAGES, load_s=0.099)
    case = replace(FLEET, images=images)
    assert case.rate() == pytest.approx((20, "CPU"))
    fed = replace(case, feeders=Feeders(Instance(8, 0, (0, 0), 1e9), 1, 2, 1e6))
    # 20 of its own, and 4 processes of 20; the network would take 998.
    assert fed.rate() == pytest.approx((100, "CPU"))
    assert replace(fed, instance=replace(NODE, network_bytes_per_s=4.2e7)).rate() == pytest.approx(
        (60, "network")
    )


def test_estimates_and_costs_are_drawn_evenly() -> None:
    case = replace(FLEET, instance=replace(NODE, gpu_rates=(50.0, 200.0), cores=64))
    drawn = sorted(1e5 / run.work_s for run in simulate(case, 2))
    assert drawn == pytest.approx([50 * 4**0.25, 50 * 4**0.75])


def test_compared_with_a_measured_run() -> None:
    timing = Timing(actor_start_s=10, shard_variation=0.1)
    comparison = compare(120.0, 100.0, ImageSet(20_000, 1000), 2, timing)
    assert comparison.simulated_s == pytest.approx(120, rel=0.05)
    assert comparison.low_s < comparison.simulated_s < comparison.high_s
    assert comparison.error == pytest.approx(comparison.simulated_s / 120 - 1)
    assert comparison.is_within
    assert not compare(240.0, 100.0, ImageSet(20_000, 1000), 2, timing).is_within
    with pytest.raises(ValueError, match="wall_s=0"):
        compare(0, 100, ImageSet(1, 1), 1, timing)


def test_what_cannot_be_simulated() -> None:
    for case in (replace(FLEET, nodes=0), replace(FLEET, images=ImageSet(0, 1))):
        with pytest.raises(ValueError, match="above 0"):
            simulate(case)
    with pytest.raises(ValueError, match="no node has a CPU for each"):
        Fleet(IMAGES, Instance(1, 2, (1, 1)), 1, Store(inf)).rate()
