"""How many actors of how many CPUs a cluster is cut into."""

import pytest

from wallclock.predict import pool
from wallclock.predict.costs import JobSetup, Machine, StageCosts, StepTime
from wallclock.predict.model import Pipeline
from wallclock.predict.pool import Node

#: 100 images a second on a core.
COSTS = StageCosts(decode_s=0.01)


def on_gpu(per_image_s: float) -> Pipeline:
    machine, setup = Machine(16, gpu=True), JobSetup(16, 64, "threads")
    return Pipeline(COSTS, StepTime(0.0, per_image_s), machine, setup)


def on_cpu(cores: int, forward_s: float) -> Pipeline:
    machine = Machine(cores, shares_cores=True, forward_cores=cores)
    setup = JobSetup(cores, 64, "threads")
    return Pipeline(COSTS, StepTime(0.0, forward_s / cores), machine, setup)


@pytest.mark.parametrize(
    ("per_image_s", "cpus", "limits"), [(1 / 400, 4, "accelerator"), (1 / 5000, 16, "transform")]
)
def test_a_gpu_gets_the_cores_that_keep_it_busy(per_image_s: float, cpus: int, limits: str) -> None:
    chosen = pool.size([Node(32, 2), Node(4), Node(32, 2)], 99, on_gpu(per_image_s), gpu=True)
    assert (chosen.actors, chosen.gpus) == (4, 1)
    assert chosen.cpus == pytest.approx(cpus, abs=1)
    assert "a core prepares 100 images/s" in str(chosen)
    assert limits in chosen.reason
    assert chosen.img_per_s == pytest.approx(min(1 / per_image_s, 100 * chosen.cpus), rel=0.05)


def test_without_a_gpu_actors_are_as_large_as_they_can_be() -> None:
    light, nodes = on_cpu(8, 1e-9), [Node(8), Node(8), Node(0)]
    chosen = pool.size(nodes, 99, light, gpu=False)
    assert (chosen.actors, chosen.cpus, chosen.gpus) == (2, 8, 0)
    assert pool.size(nodes, 99, light, gpu=False, cpus=3).actors == 4
    assert pool.size(nodes, 1, None, gpu=False).actors == 1
    # Of 8 and 6 CPUs, actors of 8 would leave six unused.
    chosen = pool.size([Node(8), Node(6)], 99, light, gpu=False)
    assert chosen.actors * chosen.cpus == 14


def test_a_forward_pass_on_all_cores_waits_for_those_that_load() -> None:
    """So that it is better on one: what a shared core delays is then only its own."""
    chosen = pool.size([Node(8)], 99, on_cpu(8, 0.1), gpu=False)
    assert (chosen.actors, chosen.cpus) == (8, 1)
    assert chosen.img_per_s == pytest.approx(1 / 0.11, rel=0.05)
    assert pool.size([Node(8)], 1, on_cpu(8, 0.1), gpu=False).cpus == 8  # one shard: one actor


@pytest.mark.parametrize(
    ("nodes", "gpu", "cpus", "reason"),
    [
        ([Node(8)], True, 0, "no node has a CPU for each of its GPUs"),
        ([Node(2, 4)], True, 0, "no node has a CPU for each of its GPUs"),
        ([Node(0)], False, 0, "no node has a CPU"),
        ([Node(8), Node(4)], False, 9, "no node has 9 CPUs for an actor: 8 at most"),
    ],
)
def test_no_room(nodes: list[Node], gpu: bool, cpus: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        pool.size(nodes, 9, None, gpu=gpu, cpus=cpus)
