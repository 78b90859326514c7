"""The throughput of a pipeline from the costs of its parts, and which of them is the bottleneck.

Concurrent resources move at the pace of the slowest; what one process does adds up. Three resources
are concurrent: the storage; the loaders, one core each while there is one; the main process, which
takes a batch through receive, h2d, forward, d2h and serialize, waiting for the device. All of them
draw on the same cores, and so does the forward pass of device=cpu: no more core seconds can be
spent in a second than there are cores (work conservation; Kleinrock, "Queueing Systems" II, 1976,
chapter 3), and a forward pass that has to share one core is slowed down on all of its cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from wallclock.predict.costs import BatchTransfer, JobSetup, Machine, StageCosts, StepTime, check
from wallclock.predict.queueing import simulate

#: Of the costs, relative: about the difference between two runs of the same cell.
UNCERTAINTY = 0.15

#: The possible bottlenecks; ties resolve in this order.
RESOURCES = ("accelerator", "h2d", "main", "transform", "storage")


@dataclass(frozen=True)
class Prediction:
    """The expected throughput of a setup.

    `low` and `high`: with every cost higher, or lower, by the uncertainty. `bottleneck`: one of
    RESOURCES; `transform` is CPU work before the device, `main` the main process's own work.
    `accelerator_utilization`: 0 to 1. `supply`: images a second of each resource alone.
    `accelerator_bound`: the speedup of an accelerator that took no time.
    """

    img_per_s: float
    low: float
    high: float
    bottleneck: str
    accelerator_utilization: float
    supply: Mapping[str, float]
    accelerator_bound: float


def predict(
    costs: StageCosts,
    step: StepTime,
    machine: Machine,
    setup: JobSetup,
    batch_transfer: BatchTransfer | None = None,
    uncertainty: float = UNCERTAINTY,
) -> Prediction:
    """Throughput in the steady state.

    Args:
        costs: of an image, from a serial pass.
        step: the forward pass of a batch.
        batch_transfer: of a batch between processes; ignored where loaders are threads.
        uncertainty: of the costs, relative.

    Raises:
        ValueError: nothing costs anything, or an uncertainty outside 0 to 1.
    """
    check("uncertainty", uncertainty)
    if uncertainty >= 1:
        raise ValueError(f"uncertainty={uncertainty}: relative, below 1")
    case = _Case(costs, step, machine, setup, batch_transfer or BatchTransfer())
    rate = case.rate()
    free = replace(case, step=StepTime())
    return Prediction(
        img_per_s=rate,
        low=rate / (1 + uncertainty),
        high=rate / (1 - uncertainty),
        bottleneck=case.bottleneck(),
        accelerator_utilization=min(1.0, rate * case.forward_s),
        supply=case.supply(),
        accelerator_bound=max(1.0, free.rate() / rate) if free.costs_something else inf,
    )


def crossover_batch(
    costs: StageCosts,
    step: StepTime,
    machine: Machine,
    setup: JobSetup,
    batch_transfer: BatchTransfer | None = None,
) -> float | None:
    """The batch size above which loading is the bottleneck, not the accelerator; None if never.

    Loading takes B × t, the step takes a + B × s: they cross at B = a / (t - s).
    """
    case = _Case(costs, step, machine, setup, batch_transfer or BatchTransfer())
    per_image = 1 / case.transform_supply() if case.load_s else 0.0
    if per_image <= step.per_image_s:
        return None
    return step.fixed_s / (per_image - step.per_image_s)


def workers_to_saturate(
    costs: StageCosts,
    step: StepTime,
    machine: Machine,
    setup: JobSetup,
    batch_transfer: BatchTransfer | None = None,
) -> int | None:
    """The fewest workers that saturate the main process; None if cores or storage cannot.

    Where the forward pass runs on the loaders' cores, they need only saturate those cores.
    """
    case = _Case(costs, step, machine, setup, batch_transfer or BatchTransfer())
    for workers in range(1, 2 * machine.cores + 1):
        case = replace(case, setup=replace(setup, workers=workers))
        demand = 1 / case.main_s if case.main_s else inf
        possible = case.cores_supply()
        if machine.shares_cores:
            demand = min(demand, possible)
        supply = min(case.transform_supply(), case.storage_supply(), possible)
        if supply >= demand * (1 - 1e-9):
            return workers
    return None


@dataclass(frozen=True)
class _Case:
    """One setup; all times are seconds of one image."""

    costs: StageCosts
    step: StepTime
    machine: Machine
    setup: JobSetup
    batch_transfer: BatchTransfer

    def _per_image(self, step: StepTime) -> float:
        return step.batch_s(self.setup.batch_size) / self.setup.batch_size

    @property
    def _in_processes(self) -> bool:
        return self.setup.overlaps and self.setup.engine == "dataloader"

    @property
    def forward_s(self) -> float:
        return self._per_image(self.step)

    @property
    def load_s(self) -> float:
        """Core seconds until an image is in its batch, with as many loaders as there are."""
        busy = self.setup.workers if self.setup.overlaps else 0
        return self.costs.load_s * (self.machine.slowdown(busy) if busy else 1.0)

    @property
    def send_s(self) -> float:
        return self._per_image(self.batch_transfer.worker) if self._in_processes else 0.0

    @property
    def receive_s(self) -> float:
        return self._per_image(self.batch_transfer.main) if self._in_processes else 0.0

    @property
    def main_s(self) -> float:
        """Seconds in the main process, the wait for the device included."""
        device_s = self.costs.h2d_s + self.forward_s + self.costs.d2h_s
        return self.receive_s + device_s + self.costs.serialize_s

    @property
    def costs_something(self) -> bool:
        return self.load_s + self.main_s > 0

    def core_seconds(self) -> dict[str, float]:
        """Core seconds by resource."""
        forward = self.forward_s * self.machine.forward_cores if self.machine.shares_cores else 0.0
        return {
            "accelerator": forward,
            "main": self.receive_s + self.costs.serialize_s,
            "transform": self.load_s + self.send_s,
        }

    def storage_supply(self) -> float:
        rate = self.machine.storage_bytes_per_s
        return rate / self.costs.image_bytes if rate and self.costs.image_bytes else inf

    def transform_supply(self) -> float:
        """Images a second of the loaders: one core each, while there is one.

        A DataLoader worker sends a finished batch in a thread of its own, while it loads the next
        one: the longer of the two sets its pace, both use cores.
        """
        if not self.setup.overlaps:
            return _inverse(self.load_s)
        longer = max(self.load_s, self.send_s)
        if not longer:
            return inf
        return min(self.setup.workers / longer, self.machine.cores / (self.load_s + self.send_s))

    def cores_supply(self) -> float:
        """CPU-bound rate: work conservation, reduced when the forward pass shares the cores.

        A forward pass of T threads waits for its slowest one, so that a loader on one of their T
        cores delays all of them. Where a core is shared in equal parts, an image takes F + L: its
        forward pass, and the part of its loading that gets no free core. Loaders with more to do
        than fits next to the pass (L > F) run concurrently with it: F + F, and F + L / k once that
        is longer, k of them.
        """
        spent = sum(self.core_seconds().values())
        if not spent:
            return inf
        conserved = self.machine.cores / spent
        if not (self.machine.shares_cores and self.setup.overlaps):
            return conserved
        free = self.machine.cores - self.machine.forward_cores
        load = max(0.0, self.load_s + self.send_s - free * self.forward_s)
        loaders = min(self.setup.workers, self.machine.cores)
        delay = max(min(load, self.forward_s), load / loaders)
        return min(conserved, 1 / (self.main_s + delay))

    def supply(self) -> dict[str, float]:
        """Images a second of each resource alone; what costs nothing is left out."""
        rates = {
            "storage": self.storage_supply(),
            "transform": self.transform_supply(),
            "h2d": _inverse(self.costs.h2d_s),
            "accelerator": _inverse(self.forward_s),
            "main": _inverse(self.main_s),
            "cores": self.cores_supply(),
        }
        return {name: rate for name, rate in rates.items() if rate != inf}

    def rate(self) -> float:
        """Images a second.

        Raises:
            ValueError: nothing costs anything.
        """
        if not self.costs_something:
            raise ValueError("no stage costs anything: nothing sets the pace")
        if not self.setup.overlaps:
            waits = 1 / self.storage_supply() - self.costs.read_s
            return 1 / (self.load_s + self.main_s + max(0.0, waits))
        size, workers = self.setup.batch_size, self.setup.workers
        # Sums of B images vary less than one: by the square root of B, as independent ones do.
        batches = simulate(
            size * workers / self.transform_supply(),
            size * self.main_s,
            workers,
            self.setup.depth,
            self.costs.variation / size**0.5,
            self.step.variation,
        )
        return min(batches * size, self.cores_supply(), self.storage_supply())

    def bottleneck(self) -> str:
        """The resource that sets the pace; within one process, what takes it longest."""
        main = {"accelerator": self.forward_s, "h2d": self.costs.h2d_s}
        main["main"] = self.main_s - sum(main.values())
        storage_s = 1 / self.storage_supply()
        if not self.setup.overlaps:
            return _largest({**main, "transform": self.load_s, "storage": storage_s})
        transform_s = 1 / self.transform_supply()
        paces = {"main": self.main_s, "transform": transform_s, "storage": storage_s}
        if 1 / self.cores_supply() > max(paces.values()) * (1 + 1e-9):
            return _largest(self.core_seconds())
        slowest = _largest(paces)
        return _largest(main) if slowest == "main" else slowest


def _inverse(seconds: float) -> float:
    return 1 / seconds if seconds else inf


def _largest(seconds: Mapping[str, float]) -> str:
    return max((name for name in RESOURCES if name in seconds), key=seconds.__getitem__)
