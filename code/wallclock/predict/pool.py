"""How many actors of how many CPUs a cluster's nodes are cut into, from the costs of the parts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wallclock.predict.costs import StepTime
from wallclock.predict.model import Pipeline

#: Of the best total rate: what is within it counts as equal.
_EQUAL = 0.02


@dataclass(frozen=True)
class Node:
    """What a node has to give."""

    cpus: int
    gpus: int = 0


@dataclass(frozen=True)
class Pool:
    """Actors of `cpus` and `gpus` each. `img_per_s`: of one; None where nothing was measured."""

    actors: int
    cpus: int
    gpus: int
    img_per_s: float | None
    reason: str

    def room(self, node: Node) -> int:
        """The actors that a node can have."""
        return _room(node, self.cpus, bool(self.gpus))

    def __str__(self) -> str:
        each = f"{self.cpus} CPUs" + " and a GPU" * self.gpus
        rate = f"about {self.actors * self.img_per_s:,.0f} images/s" if self.img_per_s else ""
        return ", ".join(filter(None, (f"{self.actors} actors of {each}: {self.reason}", rate)))


def actor_cpus(nodes: Sequence[Node], gpu: bool, wanted: int) -> int:
    """The CPUs of an actor that are wanted; 0: the most that one can have on any node.

    Raises:
        ValueError: no node has room for an actor.
    """
    if gpu:
        per_actor = [node.cpus // node.gpus for node in nodes if node.gpus]
    else:
        per_actor = [node.cpus for node in nodes]
    most = max(per_actor, default=0)
    if not most:
        raise ValueError(f"no node has {'a CPU for each of its GPUs' if gpu else 'a CPU'}")
    if wanted > most:
        raise ValueError(f"no node has {wanted} CPUs for an actor: {most} at most")
    return wanted or most


def size(
    nodes: Sequence[Node], shards: int, pipeline: Pipeline | None, *, gpu: bool, cpus: int = 0
) -> Pool:
    """The pool with the highest rate.

    With GPUs there is an actor for each, of the fewest CPUs that reach that rate. Without, actors
    are as large as they can be at that rate: each has its own copy of the model in memory.

    Args:
        nodes: of the cluster; those without a GPU count only where no actor needs one.
        shards: that are missing: more actors would have no work.
        pipeline: measured on as many CPUs as its machine has; None: each actor gets all it can.
        cpus: of an actor; 0 chooses.

    Raises:
        ValueError: no node has room for an actor.
    """
    most = actor_cpus(nodes, gpu, cpus)

    def actors(each: int) -> int:
        return min(sum(_room(node, each, gpu) for node in nodes), shards)

    if pipeline is None:
        return Pool(actors(most), most, int(gpu), None, "too few images to measure rates")
    sizes = [cpus] if cpus else range(1, most + 1)
    rates = {each: _on(pipeline, each).rate() for each in sizes}
    best = max(actors(each) * rate for each, rate in rates.items())
    equal = [each for each in sizes if actors(each) * rates[each] >= best * (1 - _EQUAL)]
    each = min(equal) if gpu else max(equal)
    return Pool(actors(each), each, int(gpu), rates[each], _reason(_on(pipeline, each), gpu))


def _room(node: Node, cpus: int, gpu: bool) -> int:
    return min(node.cpus // cpus, node.gpus) if gpu else node.cpus // cpus


def _on(pipeline: Pipeline, cpus: int) -> Pipeline:
    """The same on so many CPUs; a CPU's forward pass takes its core seconds wherever it runs."""
    machine, step = pipeline.machine, pipeline.step
    if machine.shares_cores:
        factor = machine.forward_cores / cpus
        step = StepTime(step.fixed_s * factor, step.per_image_s * factor, step.variation)
        machine = replace(machine, forward_cores=cpus)
    setup = replace(pipeline.setup, workers=cpus)
    return replace(pipeline, step=step, machine=replace(machine, cores=cpus), setup=setup)


def _reason(pipeline: Pipeline, gpu: bool) -> str:
    n, load_s = pipeline.setup.batch_size, pipeline.costs.load_s
    model = f"the model embeds {n / pipeline.step.batch_s(n):,.0f} on {'a GPU' if gpu else 'them'}"
    prepared = f"a core prepares {1 / load_s:,.0f} images/s, {model}"
    return f"{prepared}, the {pipeline.bottleneck()} limits"
