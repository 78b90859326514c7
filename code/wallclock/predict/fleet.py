"""A job on many cloud machines: hours, dollars and what limits it, by a seeded simulation.

A node's rate is the predictor's (`model`, with an actor for each GPU as `pool` has it), under what
an object store gives it. The job is then simulated as `job.cluster` runs it: all nodes are up when
it begins, since the pool is sized once; the driver lists the images and sends the list to each
node; an actor takes the next shard when it is done with one (list scheduling; Graham, 1966); a
shard's time is log-normal. A node is lost at the rate of a Poisson process and takes the shard that
was open with it; a replacement boots, and what is missing at the end of a pass is made in another
one. Each actor of a node with several GPUs is lost on its own, which leaves the mean as it is.

An actor's next loss does not depend on its past (the exponential distribution), so that each of its
shards is an independent trial and a pass of any length is a few array operations.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, inf, log, log1p, log2

import numpy as np
import numpy.typing as npt

from wallclock.predict.costs import JobSetup, Machine, StageCosts, StepTime, check
from wallclock.predict.model import Pipeline
from wallclock.predict.pool import Node, actor_cpus

Floats = npt.NDArray[np.float64]

_BATCH = 64
#: The predictor's bottlenecks as a fleet's limits.
_LIMITS = {"transform": "CPU", "accelerator": "GPU", "storage": "network"}
#: The most nodes that are looked at for a limit.
_MOST_NODES = 100_000


@dataclass(frozen=True)
class Images:
    """An image set. `load_s`: core seconds of decoding and resizing, all cores busy; `get_s`: of a
    GET; `gets_per_s`: of one process at most.
    """

    count: int
    shard: int
    image_bytes: float
    load_s: float
    get_s: float = 0.0
    gets_per_s: float = inf

    @property
    def shards(self) -> int:
        """How many there are."""
        return ceil(self.count / self.shard)


@dataclass(frozen=True)
class Instance:
    """A machine. `gpu_rates`: the lower and the higher estimate of a GPU's images a second;
    `network_bytes_per_s`: None where it never limits.
    """

    name: str
    cores: int
    network_bytes_per_s: float | None = None
    gpus: int = 1
    gpu_rates: tuple[float, float] = (inf, inf)


@dataclass(frozen=True)
class Store:
    """An object store. `spread`: a shard is of all prefixes, not of neighbouring keys."""

    gets_per_prefix: float = inf
    prefixes: int = 1
    latency_s: float = 0.0
    in_flight: int = 1
    spread: bool = False

    def actor_limit(self, images: Images, actors: int) -> float:
        """GETs a second of each actor before a prefix's limit.

        In the keys' order neighbouring shards are open, and as many as a prefix holds share it.
        """
        of_prefix = max(1.0, images.count / self.prefixes / images.shard)
        sharing = actors / self.prefixes if self.spread else min(actors, of_prefix)
        return self.gets_per_prefix / sharing


@dataclass(frozen=True)
class Timing:
    """Seconds and rates around the work itself. `boot_s`: of a node, its environment included.

    `hop_s`: an image's share of sending the list to one more node; `losses_per_s`: of a node.
    `cost_spread`: of a core's costs, either way, for a whole run.
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

    def driver_s(self, images: int, nodes: int) -> float:
        """Listing, then a tree of hops."""
        return images * (self.list_s + self.hop_s * ceil(log2(nodes + 1)))


@dataclass(frozen=True)
class Feeders:
    """CPU nodes that prepare pixels for a GPU node: `count` beside each, `cores` to a process."""

    instance: Instance
    count: int
    cores: int
    pixel_bytes: float


@dataclass(frozen=True)
class Rate:
    """Images a second of an actor, and what limits it."""

    img_per_s: float
    limit: str


@dataclass(frozen=True)
class Fleet:
    """So many equal nodes, and the job on them."""

    images: Images
    instance: Instance
    nodes: int
    store: Store = Store()
    timing: Timing = Timing()
    feeders: Feeders | None = None

    @property
    def actors(self) -> int:
        """One for each GPU."""
        return self.nodes * self.instance.gpus

    def rate(self, gpu: float | None = None, cost: float = 1.0) -> Rate:
        """Of an actor, with a GPU's rate (None: the geometric mean of the two estimates) and a
        factor on the core's costs.

        Raises:
            ValueError: a core for each GPU is missing.
        """
        found = self._unshared(gpu, cost)
        shared = self._shared()
        limit = min(shared, key=shared.__getitem__)
        return Rate(shared[limit], limit) if shared[limit] < found.img_per_s else found

    def nodes_until(self, limit: str) -> int | None:
        """The fewest nodes from which on "S3 prefix" or "driver" limits; None: never.

        The driver limits where its own work takes longer than that of all actors, too.
        """
        alone = self._unshared().img_per_s

        def limits(nodes: int) -> bool:
            case = replace(self, nodes=nodes)
            work_s = self.images.count / (alone * case.actors)
            longer = self.timing.driver_s(self.images.count, nodes) > work_s
            return case._shared()[limit] < alone or (limit == "driver" and longer)

        at = bisect_left(range(1, _MOST_NODES), True, key=limits) + 1
        return at if at < _MOST_NODES else None

    def _unshared(self, gpu: float | None = None, cost: float = 1.0) -> Rate:
        """An actor's rate where no other one is."""
        low, high = self.instance.gpu_rates
        gpu = (low * high) ** 0.5 if gpu is None else gpu
        own = _own_rate(self.images, self.instance, self.store, gpu, cost)
        return _fed_rate(self, own, gpu, cost) if self.feeders else own

    def _shared(self) -> dict[str, float]:
        """Each actor's share of what all use."""
        return {
            "S3 prefix": self.store.actor_limit(self.images, self.actors),
            "driver": self.timing.dispatch_per_s * self.images.shard / self.actors,
        }


@cache
def _own_rate(
    images: Images, instance: Instance, store: Store, gpu: float, cost: float, cores: int = 0
) -> Rate:
    """An actor's rate with its share of its node, by the predictor; then by its own GETs."""
    each = actor_cpus([Node(instance.cores, instance.gpus)], instance.gpus > 0, cores)
    network, processes = instance.network_bytes_per_s, instance.gpus or instance.cores // each
    costs = StageCosts(images.get_s * cost, images.load_s * cost, image_bytes=images.image_bytes)
    machine = Machine(each, network / processes if network else None, gpu=True)
    setup = JobSetup(each, _BATCH, "threads")
    pipeline = Pipeline(costs, StepTime(0.0, 1 / gpu), machine, setup)
    rate = pipeline.rate()
    waits = store.in_flight / store.latency_s if store.latency_s else inf
    if min(images.gets_per_s / cost, waits) >= rate:
        return Rate(rate, _LIMITS.get(pipeline.bottleneck(), "CPU"))
    if waits < images.gets_per_s / cost:
        return Rate(waits, "GETs in flight")
    return Rate(images.gets_per_s / cost, "GETs of a process")


def _fed_rate(fleet: Fleet, own: Rate, gpu: float, cost: float) -> Rate:
    """The actor's rate where CPU nodes prepare what its own cores cannot."""
    feeders, gpus = fleet.feeders, fleet.instance.gpus
    assert feeders is not None
    node = feeders.instance
    process = _own_rate(fleet.images, node, fleet.store, inf, cost, feeders.cores)
    out = (node.network_bytes_per_s or inf) / feeders.pixel_bytes
    supplied = min(node.cores // feeders.cores * process.img_per_s, out) * feeders.count / gpus
    network = (fleet.instance.network_bytes_per_s or inf) / gpus
    free = network - own.img_per_s * fleet.images.image_bytes
    paces = {
        own.limit: own.img_per_s + supplied,
        "GPU": gpu,
        "network": own.img_per_s + max(0.0, free) / feeders.pixel_bytes,
    }
    limit = min(paces, key=paces.__getitem__)
    return Rate(paces[limit], limit)


@dataclass(frozen=True)
class Run:
    """One simulated run. `hours`: from the launch of the nodes. `limit`: what took longest."""

    hours: float
    work_s: float
    losses: int
    limit: str


def simulate(fleet: Fleet, runs: int = 1, seed: int = 0) -> list[Run]:
    """Seeded runs of a job.

    Each draws a GPU's rate between its estimates and a factor on the core's costs, evenly over all
    runs (Latin hypercube); then boots, shards and losses.

    Raises:
        ValueError: no node, no image, or a core for each GPU is missing.
    """
    check("nodes", fleet.nodes, above_zero=True)
    check("images", fleet.images.count, above_zero=True)
    rng = np.random.default_rng(seed)
    strata = (np.arange(runs) + 0.5) / runs
    low, high = fleet.instance.gpu_rates
    gpus = low * (high / low) ** rng.permutation(strata) if low < high else np.full(runs, low)
    costs = 1 + fleet.timing.cost_spread * (2 * rng.permutation(strata) - 1)
    pairs = zip(gpus.tolist(), costs.tolist(), strict=True)
    return [_run(fleet, fleet.rate(gpu, cost), rng) for gpu, cost in pairs]


def likely_limit(runs: Sequence[Run]) -> str:
    """What limited most of them."""
    return Counter(run.limit for run in runs).most_common(1)[0][0]


def _run(fleet: Fleet, rate: Rate, rng: np.random.Generator) -> Run:
    timing, shards = fleet.timing, fleet.images.shards
    begin = float(_lognormal(rng, timing.boot_s, timing.boot_variation, (fleet.nodes,)).max())
    driver_s = timing.driver_s(fleet.images.count, fleet.nodes)
    shard_s = fleet.images.count / shards / rate.img_per_s
    at = begin + driver_s + timing.actor_start_s  # the probe's
    first, missing, losses = at, shards, 0
    free = np.full(fleet.actors, at)
    while missing:
        free = np.maximum(free, at) + timing.actor_start_s
        at, missing, free = _pass(rng, missing, free, shard_s, timing)
        losses += missing
    spent = {"start": begin + timing.actor_start_s, "driver": driver_s, rate.limit: at - first}
    return Run(at / 3600, at - first, losses, max(spent, key=spent.__getitem__))


def _pass(
    rng: np.random.Generator, shards: int, free: Floats, shard_s: float, timing: Timing
) -> tuple[float, int, Floats]:
    """Each shard once: the pass's end, the shards that were lost, when each actor is free.

    Every actor's next shards are drawn ahead; the earliest starts of all of them are those that
    happen.
    """
    starts = took = ran = np.empty((len(free), 0))
    upto = free
    while True:
        ahead = len(free), ceil(1.05 * shards / len(free)) + 4
        more = _lognormal(rng, shard_s, timing.shard_variation, ahead)
        kept, occupied = more, more
        if timing.losses_per_s:
            kept = np.minimum(more, rng.exponential(1 / timing.losses_per_s, ahead))
            lost, occupied = kept < more, kept.copy()
            count = (int(lost.sum()),)
            boots = _lognormal(rng, timing.boot_s, timing.boot_variation, count)
            occupied[lost] += boots + timing.actor_start_s
        ends = upto[:, None] + np.cumsum(occupied, axis=1)
        starts = np.hstack([starts, ends - occupied])
        took, ran, upto = np.hstack([took, occupied]), np.hstack([ran, kept]), ends[:, -1]
        first = np.argpartition(starts, shards - 1, None)[:shards]
        if starts.flat[first].max() <= upto.min():
            break
    chosen = np.zeros(starts.size, dtype=bool)
    chosen[first] = True
    chosen = chosen.reshape(starts.shape)
    free = np.where(chosen, starts + took, free[:, None]).max(axis=1)
    return float((starts + ran)[chosen].max()), int((ran < took)[chosen].sum()), free


def _lognormal(
    rng: np.random.Generator, mean: float, variation: float, shape: tuple[int, ...]
) -> Floats:
    if not variation or not mean:
        return np.full(shape, mean)
    variance = log1p(variation * variation)
    return rng.lognormal(log(mean) - variance / 2, variance**0.5, shape)


@dataclass(frozen=True)
class Comparison:
    """A measured cluster run against its simulation. `error`: simulated over measured, less 1."""

    simulated_s: float
    low_s: float
    high_s: float
    error: float
    is_within: bool


def compare(
    wall_s: float,
    img_per_s: float,
    images: Images,
    actors: int,
    timing: Timing,
    *,
    runs: int = 200,
    seed: int = 0,
) -> Comparison:
    """A run on a cluster that was up, of actors with a measured rate each, from its call to its end.

    `low_s` and `high_s`: the simulation's 5th and 95th percentiles; the check is whether the
    measured time is between them.

    Raises:
        ValueError: no actor, no image, or a time or rate that is not above 0.
    """
    check("wall_s", wall_s, above_zero=True)
    check("img_per_s", img_per_s, above_zero=True)
    instance = Instance("measured", 1, inf, 1, (img_per_s, img_per_s))
    bare = replace(images, image_bytes=0.0, load_s=0.0, get_s=0.0, gets_per_s=inf)
    found = simulate(Fleet(bare, instance, actors, timing=timing), runs, seed)
    low, middle, high = np.quantile([3600 * run.hours for run in found], (0.05, 0.5, 0.95)).tolist()
    return Comparison(middle, low, high, middle / wall_s - 1, low <= wall_s <= high)
