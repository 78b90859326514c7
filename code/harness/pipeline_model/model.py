"""The throughput of a pipeline from the costs of its parts, and which of them is the bottleneck.

Concurrent resources move at the pace of the slowest; what one process does adds up. Three resources
are concurrent: the storage; the loaders, one core each while there is one; the main process, which
takes a batch through receive, h2d, forward, d2h and serialize, waiting for the device; where each
of these has a stream, the longest counts. All of them draw on the same cores, and so do the forward
pass of device=cpu and a host that spins while it waits for a GPU: no more core seconds can be spent
in a second than there are cores (work conservation; Kleinrock, "Queueing Systems" II, 1976, chapter
3), and a forward pass that has to share one core is slowed down on all of its cores.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from harness.pipeline_model.costs import BatchTransfer, JobSetup, Machine, StageCosts, StepTime
from harness.pipeline_model.queueing import simulate
from wallclock.clock import LOADING_STAGES, STAGES
from wallclock.predict.intervals import RATE_ERROR, reach

#: The possible bottlenecks, each with its stages; ties resolve in this order.
RESOURCES: Mapping[str, tuple[str, ...]] = {
    "accelerator": ("forward",),
    "h2d": ("h2d",),
    "main": ("d2h", "serialize"),
    "transform": LOADING_STAGES,
    "storage": ("read",),
}


@dataclass(frozen=True)
class Prediction:
    """The expected throughput of a pipeline in the steady state.

    `low` and `high`: as far as the costs' spread and earlier errors reach. `bottleneck`: one of
    RESOURCES. `accelerator_utilization`: 0 to 1. `supply`: the rate of each resource alone.
    `accelerator_bound`: the speedup of an accelerator that took no time.
    """

    img_per_s: float
    low: float
    high: float
    bottleneck: str
    accelerator_utilization: float
    supply: Mapping[str, float]
    accelerator_bound: float


@dataclass(frozen=True)
class Pipeline:
    """A job on a machine, by its costs.

    `costs`: of an image, from a serial pass. `step`: of a batch's forward pass.
    `batch_transfer`: of a batch between processes; ignored where loaders are threads.
    """

    costs: StageCosts
    step: StepTime
    machine: Machine
    setup: JobSetup
    batch_transfer: BatchTransfer = field(default_factory=BatchTransfer)

    def predict(self, spread: float = 0.0) -> Prediction:
        """Throughput in the steady state; `spread`: how far passes lie apart, 0.1 for a tenth."""
        rate = self.rate()
        factor = reach(RATE_ERROR, spread)
        return Prediction(
            img_per_s=rate,
            low=rate / factor,
            high=rate * factor,
            bottleneck=self.bottleneck(),
            accelerator_utilization=min(1.0, rate * self._forward_s),
            supply=self.supply(),
            accelerator_bound=self.speedup_without("forward"),
        )

    def speedup_without(self, stage: str) -> float:
        """The speedup if a stage took no time; infinite where nothing else costs anything."""
        step = StepTime() if stage == "forward" else self.step
        names = {"forward": (), "read": ("read_s", "wait_s")}.get(stage, (f"{stage}_s",))
        costs = replace(self.costs, **dict.fromkeys(names, 0.0))
        rest = replace(self, costs=costs, step=step)
        return max(1.0, rest.rate() / self.rate()) if rest._costs_something else inf

    def stage_seconds(self) -> dict[str, float]:
        """Seconds of an image in each stage, run sequentially."""
        loading = {name: getattr(self.costs, f"{name}_s", 0.0) for name in STAGES}
        loading["read"] += self.costs.wait_s
        return {**loading, "forward": self._forward_s}

    def rate(self) -> float:
        """Images per second. Raises ValueError: nothing costs anything."""
        if not self._costs_something:
            raise ValueError("no stage costs anything: nothing sets the pace")
        if not self.setup.overlaps:
            waits = 1 / self._storage_supply() - self.costs.read_s
            return 1 / (self._load_s + self._main_s + max(self.costs.wait_s, waits))
        size, workers = self.setup.batch_size, self.setup.workers
        # A worker alone on a core. More of them than cores take turns: while one waits for its
        # place in the order, the others have its share, so that the cores bound all together.
        # Sums of B images vary less than one: by the square root of B, as independent ones do.
        batches = simulate(
            size * self._worker_s,
            size * self._main_s,
            workers,
            self.setup.depth,
            self.costs.variation / size**0.5,
            self.step.variation,
        )
        return min(batches * size, self._cores_supply(), self._storage_supply())

    def bottleneck(self) -> str:
        """The resource that sets the pace; within one process, what takes it longest."""
        main = self._main_parts()
        storage_s, wait_s = 1 / self._storage_supply(), self.costs.wait_s
        if not self.setup.overlaps:
            parts = {"transform": self._load_s, "storage": max(storage_s, wait_s)}
            return _largest({**main, **parts})
        transform_s = 1 / self._transform_supply()
        paces = {"main": self._main_s, "transform": transform_s, "storage": storage_s}
        if 1 / self._cores_supply() > max(paces.values()) * (1 + 1e-9):
            return _largest(self._core_seconds())
        slowest = _largest(paces)
        ready = replace(self, costs=replace(self.costs, wait_s=0.0))
        if slowest == "transform" and transform_s * ready._transform_supply() > 2:
            return "storage"
        return _largest(main) if slowest == "main" else slowest

    def supply(self) -> dict[str, float]:
        """The rate of each resource alone; what costs nothing is left out."""
        rates = {
            "storage": self._storage_supply(),
            "transform": self._transform_supply(),
            "h2d": _inverse(self.costs.h2d_s),
            "accelerator": _inverse(self._forward_s),
            "main": _inverse(self._main_s),
            "cores": self._cores_supply(),
        }
        return {name: rate for name, rate in rates.items() if rate != inf}

    # From here on, all times are seconds of one image, all rates images per second.

    def _per_image(self, step: StepTime) -> float:
        return step.batch_s(self.setup.batch_size) / self.setup.batch_size

    @property
    def _forward_s(self) -> float:
        return self._per_image(self.step)

    @property
    def _load_s(self) -> float:
        """Core seconds until an image is in its batch, with as many loaders as there are."""
        busy = self.setup.workers if self.setup.overlaps else 0
        return self.costs.load_s * (self.machine.slowdown(busy) if busy else 1.0)

    @property
    def _in_processes(self) -> bool:
        return self.setup.overlaps and self.setup.engine == "dataloader"

    @property
    def _send_s(self) -> float:
        return self._per_image(self.batch_transfer.worker) if self._in_processes else 0.0

    @property
    def _receive_s(self) -> float:
        return self._per_image(self.batch_transfer.main) if self._in_processes else 0.0

    @property
    def _streams(self) -> bool:
        """Whether copies in, forward passes, copies out and the sink overlap."""
        return self.machine.gpu and self.setup.engine == "threads" and self.setup.overlaps

    def _main_parts(self) -> dict[str, float]:
        """Seconds in the main process by resource, the wait for the device included."""
        rest = self.costs.d2h_s, self.costs.serialize_s
        return {
            "accelerator": self._forward_s,
            "h2d": self.costs.h2d_s,
            "main": max(rest) if self._streams else self._receive_s + sum(rest),
        }

    @property
    def _main_s(self) -> float:
        parts = self._main_parts().values()
        return max(parts) if self._streams else sum(parts)

    @property
    def _costs_something(self) -> bool:
        return self._load_s + self._main_s > 0

    def _core_seconds(self) -> dict[str, float]:
        shares = self.machine.shares_cores
        spins = self.machine.gpu and not self._streams
        spun_s = self.costs.h2d_s + self._forward_s + self.costs.d2h_s if spins else 0.0
        return {
            "accelerator": self._forward_s * self.machine.forward_cores if shares else 0.0,
            "main": self._receive_s + self.costs.serialize_s + spun_s,
            "transform": self._load_s + self._send_s,
        }

    def _storage_supply(self) -> float:
        rate = self.machine.storage_bytes_per_s
        return rate / self.costs.image_bytes if rate and self.costs.image_bytes else inf

    def _transform_supply(self) -> float:
        """The loaders' rate: one core each, while there is one."""
        if not self.setup.overlaps:
            return _inverse(self._load_s + self.costs.wait_s)
        # A DataLoader worker sends a batch in a thread of its own, while it loads the next one.
        longer = self._worker_s
        if not longer:
            return inf
        cpu_s = self._load_s + self._send_s
        return min(self.setup.workers / longer, self.machine.cores / cpu_s)

    @property
    def _worker_s(self) -> float:
        """Seconds in which a worker with a core of its own has an image ready."""
        return max(self._load_s + self.costs.wait_s, self._send_s)

    def _cores_supply(self) -> float:
        """CPU-bound rate: work conservation, reduced when the forward pass shares the cores.

        A forward pass of T threads waits for its slowest one, so that a loader on one of their T
        cores delays all of them. Where a core is shared in equal parts, an image takes F + L: its
        forward pass, and the part of its loading that gets no free core. Loaders with more to do
        than fits next to the pass (L > F) run concurrently with it: F + F, and F + L / k once that
        is longer, k of them.
        """
        spent = sum(self._core_seconds().values())
        if not spent:
            return inf
        conserved = self.machine.cores / spent
        if not (self.machine.shares_cores and self.setup.overlaps):
            return conserved
        free = self.machine.cores - self.machine.forward_cores
        load = max(0.0, self._load_s + self._send_s - free * self._forward_s)
        loaders = min(self.setup.workers, self.machine.cores)
        delay = max(min(load, self._forward_s), load / loaders)
        return min(conserved, 1 / (self._main_s + delay))


def _inverse(seconds: float) -> float:
    return 1 / seconds if seconds else inf


def _largest(seconds: Mapping[str, float]) -> str:
    return max((name for name in RESOURCES if name in seconds), key=seconds.__getitem__)
