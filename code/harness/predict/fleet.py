"""A job on many cloud machines: hours and what limits it, by a seeded simulation.

An actor's rate is the predictor's (`model`) with its share of a node, under what an object store
gives it. The job is then simulated as `job.cluster` runs it: all nodes are up when it begins, since
the pool is sized once; the driver lists the images and sends the list to each node; an actor takes
the next shard when it is done with one (list scheduling; Graham, 1966); a shard's time is
log-normal. A node is lost at the rate of a Poisson process and takes the shard that was open with
it; a replacement boots, and what is missing at the end of a pass is made in another one. Each actor
of a node with several GPUs is lost on its own, which leaves the mean as it is. How long an actor
has worked says nothing of its next loss, so that its shards are independent trials and a pass is a
few array operations.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, inf, log, log1p, log2
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wallclock.predict import (
    JobSetup,
    Machine,
    Node,
    Pipeline,
    StageCosts,
    StepTime,
    actor_cpus,
    check,
)

_Floats = npt.NDArray[np.float64]

_BATCH = 64
#: The predictor's bottlenecks as a fleet's limits.
_LIMITS = {"accelerator": "GPU", "storage": "network"}
#: The most nodes that are looked at for a limit.
_MOST_NODES = 100_000


@dataclass(frozen=True)
class ImageSet:
    """An image set. `load_s`: core seconds of decoding and resizing; `get_s`: of a GET."""

    count: int
    shard: int
    image_bytes: float = 0.0
    load_s: float = 0.0
    get_s: float = 0.0

    @property
    def shards(self) -> int:
        """How many there are."""
        return ceil(self.count / self.shard)


@dataclass(frozen=True)
class Instance:
    """A machine. `gpu_rates`: the lower and the higher estimate of a GPU's images per second;
    `network_bytes_per_s`: None where it never limits.
    """

    cores: int
    gpus: int
    gpu_rates: tuple[float, float]
    network_bytes_per_s: float | None = None


@dataclass(frozen=True)
class Store:
    """An object store, and GETs of one process: `in_flight` of them, `gets_per_s` at most.

    `spread`: a shard is of all prefixes, not of neighbouring keys.
    """

    gets_per_prefix: float = inf
    prefixes: int = 1
    latency_s: float = 0.0
    in_flight: int = 1
    gets_per_s: float = inf
    spread: bool = False


@dataclass(frozen=True)
class Timing:
    """What is around the work. `boot_s`: of a node, with its environment; `list_s`: of an image;
    `hop_s`: an image's part of sending the list on to another node; `losses_per_s`: of a node.

    `cost_spread`: of the core's costs, either way, for a whole run.
    """

    boot_s: float = 0.0
    boot_variation: float = 0.0
    actor_start_s: float = 0.0
    list_s: float = 0.0
    hop_s: float = 0.0
    dispatch_per_s: float = inf
    shard_variation: float = 0.0
    losses_per_s: float = 0.0
    cost_spread: float = 0.0


@dataclass(frozen=True)
class Feeders:
    """CPU nodes beside each GPU node that prepare pixels for it, a process on `cores` each."""

    instance: Instance
    count: int
    cores: int
    pixel_bytes: float


class Rate(NamedTuple):
    """Images per second of an actor, and what limits it."""

    img_per_s: float
    limit: str


class Run(NamedTuple):
    """One run. `hours`: from the launch of the nodes; `limit`: of what took longest."""

    hours: float
    work_s: float
    losses: int
    limit: str


@dataclass(frozen=True)
class Fleet:
    """So many equal nodes with a GPU or more, and the job on them."""

    images: ImageSet
    instance: Instance
    nodes: int
    store: Store = Store()
    timing: Timing = Timing()
    feeders: Feeders | None = None

    @property
    def actors(self) -> int:
        """One for each GPU."""
        return self.nodes * self.instance.gpus

    @property
    def driver_s(self) -> float:
        """Listing, then a tree of hops."""
        hops = ceil(log2(self.nodes + 1))
        return self.images.count * (self.timing.list_s + self.timing.hop_s * hops)

    def rate(self, gpu: float = 0.0, cost: float = 1.0, *, alone: bool = False) -> Rate:
        """Of an actor, or of one that shares nothing with others (`alone`).

        `gpu`: its rate, 0 for the geometric mean of the estimates; `cost`: a factor on the core's.

        Raises:
            ValueError: there is no core for each GPU.
        """
        low, high = self.instance.gpu_rates
        gpu = gpu or (low * high) ** 0.5
        rate = _process_rate(self.images, self.instance, self.store, gpu, cost)
        if self.feeders:
            rate = _fed_rate(self, self.feeders, rate, gpu, cost)
        return rate if alone else min(rate, *self._shared(), key=_img_per_s)

    def nodes_until(self, limit: str) -> int | None:
        """The fewest nodes from which on "S3 prefix" or "driver" limits; None: never.

        The driver limits, too, where its own work takes longer than that of all actors.
        """
        alone = self.rate(alone=True).img_per_s

        def limits(nodes: int) -> bool:
            case = replace(self, nodes=nodes)
            longer = case.driver_s * alone * case.actors > self.images.count
            below = [rate.limit for rate in case._shared() if rate.img_per_s < alone]
            return limit in below or (limit == "driver" and longer)

        at = bisect_left(range(1, _MOST_NODES), True, key=limits) + 1
        return at if at < _MOST_NODES else None

    def _shared(self) -> tuple[Rate, Rate]:
        """An actor's part of what all use. In the keys' order those that are open are neighbours,
        and as many as a prefix holds share it.
        """
        store, images = self.store, self.images
        of_prefix = max(1.0, images.count / store.prefixes / images.shard)
        sharing = self.actors / store.prefixes if store.spread else min(self.actors, of_prefix)
        dispatched = self.timing.dispatch_per_s * images.shard / self.actors
        return Rate(store.gets_per_prefix / sharing, "S3 prefix"), Rate(dispatched, "driver")


def _img_per_s(rate: Rate) -> float:
    return rate.img_per_s


@cache
def _process_rate(
    images: ImageSet, instance: Instance, store: Store, gpu: float, cost: float, cores: int = 0
) -> Rate:
    """A process's rate with its share of its node, or on `cores` of it."""
    each = actor_cpus([Node(instance.cores, instance.gpus)], instance.gpus > 0, cores)
    network = instance.network_bytes_per_s
    processes = instance.gpus or instance.cores // each
    costs = StageCosts(images.get_s * cost, images.load_s * cost, image_bytes=images.image_bytes)
    machine = Machine(each, network / processes if network else None, gpu=True)
    setup = JobSetup(each, _BATCH, "threads")
    pipeline = Pipeline(costs, StepTime(0.0, 1 / gpu), machine, setup)
    return min(
        Rate(pipeline.rate(), _LIMITS.get(pipeline.bottleneck(), "CPU")),
        Rate(store.gets_per_s / cost, "GETs of a process"),
        Rate(store.in_flight / store.latency_s if store.latency_s else inf, "GETs in flight"),
        key=_img_per_s,
    )


def _fed_rate(fleet: Fleet, feeders: Feeders, unfed: Rate, gpu: float, cost: float) -> Rate:
    """An actor's rate where CPU nodes prepare what its own cores cannot."""
    node, gpus = feeders.instance, fleet.instance.gpus
    images = fleet.images
    process = _process_rate(images, node, fleet.store, inf, cost, feeders.cores)
    sent = (node.network_bytes_per_s or inf) / feeders.pixel_bytes
    supplied = min(node.cores // feeders.cores * process.img_per_s, sent) * feeders.count / gpus
    network = (fleet.instance.network_bytes_per_s or inf) / gpus
    received = max(0.0, network - unfed.img_per_s * images.image_bytes) / feeders.pixel_bytes
    return min(
        Rate(unfed.img_per_s + supplied, unfed.limit),
        Rate(gpu, "GPU"),
        Rate(unfed.img_per_s + received, "network"),
        key=_img_per_s,
    )


def simulate(fleet: Fleet, runs: int = 1, seed: int = 0) -> list[Run]:
    """Seeded runs of a job.

    Each draws a GPU's rate between its estimates and a factor on the core's costs, evenly over all
    runs (Latin hypercube); then boots, shards and losses.

    Raises:
        ValueError: no node, no image, or no core for each GPU.
    """
    check("nodes", fleet.nodes, above_zero=True)
    check("images", fleet.images.count, above_zero=True)
    rng = np.random.default_rng(seed)
    strata = (np.arange(runs) + 0.5) / runs
    low, high = fleet.instance.gpu_rates
    gpus = (low * (high / low) ** rng.permutation(strata)).tolist()
    costs = (1 + fleet.timing.cost_spread * (2 * rng.permutation(strata) - 1)).tolist()
    rates = [fleet.rate(gpu, cost) for gpu, cost in zip(gpus, costs, strict=True)]
    return [_run(fleet, rate, rng) for rate in rates]


def _run(fleet: Fleet, rate: Rate, rng: np.random.Generator) -> Run:
    timing, shards = fleet.timing, fleet.images.shards
    boot_s = float(_lognormal(rng, timing.boot_s, timing.boot_variation, (fleet.nodes,)).max())
    shard_s = fleet.images.count / shards / rate.img_per_s
    # One actor starts as a probe, whose rates size the pool.
    begin = boot_s + timing.actor_start_s + fleet.driver_s
    at = begin
    free = np.full(fleet.actors, at)
    missing = shards
    losses = 0
    while missing:
        free = np.maximum(free, at) + timing.actor_start_s
        at, missing, free = _pass(rng, missing, free, shard_s, timing)
        losses += missing
    spent = {"start": boot_s + timing.actor_start_s, "driver": fleet.driver_s, rate.limit: 0.0}
    spent[rate.limit] += at - begin
    return Run(at / 3600, at - begin, losses, max(spent, key=spent.__getitem__))


def _pass(
    rng: np.random.Generator, shards: int, free: _Floats, shard_s: float, timing: Timing
) -> tuple[float, int, _Floats]:
    """Each shard once: when the pass ends, the shards that were lost, when each actor is free.

    Each actor's next shards are drawn ahead; the earliest starts of all of them take place.
    """
    starts = np.empty((len(free), 0))
    took, ran = starts, starts
    upto = free
    while True:
        ahead = len(free), ceil(1.05 * shards / len(free)) + 4
        more = _lognormal(rng, shard_s, timing.shard_variation, ahead)
        kept, occupied = more, more
        if timing.losses_per_s:
            kept = np.minimum(more, rng.exponential(1 / timing.losses_per_s, ahead))
            lost = kept < more
            occupied = kept.copy()
            boots = (int(lost.sum()),)
            occupied[lost] += _lognormal(rng, timing.boot_s, timing.boot_variation, boots)
            occupied[lost] += timing.actor_start_s
        ends = upto[:, None] + np.cumsum(occupied, axis=1)
        # Not ends - occupied: its rounding would decide which of the waiting actors comes first.
        starts = np.hstack([starts, upto[:, None], ends[:, :-1]])
        took = np.hstack([took, occupied])
        ran = np.hstack([ran, kept])
        upto = ends[:, -1]
        # Stable: the order in which argpartition leaves ties depends on the CPU's vector units.
        first = np.argsort(starts, axis=None, kind="stable")[:shards]
        if starts.flat[first].max() <= upto.min():
            break
    chosen = np.zeros(starts.size, dtype=bool)
    chosen[first] = True
    chosen = chosen.reshape(starts.shape)
    free = np.where(chosen, starts + took, free[:, None]).max(axis=1)
    return float((starts + ran)[chosen].max()), int((ran < took)[chosen].sum()), free


def _lognormal(
    rng: np.random.Generator, mean: float, variation: float, shape: tuple[int, ...]
) -> _Floats:
    if not variation or not mean:
        return np.full(shape, mean)
    variance = log1p(variation * variation)
    return rng.lognormal(log(mean) - variance / 2, variance**0.5, shape)


class Comparison(NamedTuple):
    """A measured run against its simulation. `low_s`, `high_s`: 5th and 95th percentiles."""

    simulated_s: float
    low_s: float
    high_s: float
    error: float
    is_within: bool


def compare(
    wall_s: float, img_per_s: float, images: ImageSet, actors: int, timing: Timing, runs: int = 200
) -> Comparison:
    """A run on a cluster that was up, by the measured rate of an actor of it.

    Raises:
        ValueError: no actor, no image, or a time or rate that is not above 0.
    """
    check("wall_s", wall_s, above_zero=True)
    check("img_per_s", img_per_s, above_zero=True)
    bare = ImageSet(images.count, images.shard)
    instance = Instance(1, 1, (img_per_s, img_per_s))
    simulated = simulate(Fleet(bare, instance, actors, timing=timing), runs)
    times = [3600 * run.hours for run in simulated]
    low_s, middle_s, high_s = (float(np.quantile(times, q)) for q in (0.05, 0.5, 0.95))
    within = low_s <= wall_s <= high_s
    return Comparison(middle_s, low_s, high_s, middle_s / wall_s - 1, within)
