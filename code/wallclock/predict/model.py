"""The throughput of a pipeline from the costs of its parts, which of them binds, and what would change that.

What runs side by side moves at the pace of the slowest; what runs in one process adds up. Three things run
side by side: the storage; the loaders, each on a core while there is one; the main process, which takes a
batch through receive, h2d, forward, d2h and serialize, waiting for the device. All of them draw on the same
cores, and so does the forward pass of device=cpu: no more core seconds can be spent in a second than there
are cores (work conservation; Kleinrock, "Queueing Systems" II, 1976, chapter 3), and a forward pass that has to
share one is held up on all of its.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from wallclock.predict.costs import Handover, Machine, Setup, StageCosts, StepTime, check
from wallclock.predict.queueing import simulate

#: Of the costs, relative: about what separates two runs of the same cell.
UNCERTAINTY = 0.15

#: What can bind, in the order in which a tie is told.
RESOURCES = ("accelerator", "h2d", "main", "transform", "storage")


@dataclass(frozen=True)
class Prediction:
    """What to expect of a setup.

    `low` and `high`: with every cost higher, or lower, by the uncertainty. `bottleneck`: one of RESOURCES;
    `transform` is what happens on the CPU before the device, `main` what the main process does itself.
    `accelerator_utilization`: 0 to 1. `supply`: images a second that each resource could bring alone.
    `accelerator_bound`: how many times faster an accelerator that took no time would make it, at most.
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
    setup: Setup,
    batch_transfer: Handover | None = None,
    uncertainty: float = UNCERTAINTY,
) -> Prediction:
    """Throughput in the steady state.

    Args:
        costs: of an image, from a serial pass.
        step: the forward pass of a batch.
        batch_transfer: of a batch between processes; left out where loaders are threads, or for nothing.
        uncertainty: of the costs, relative.

    Raises:
        ValueError: nothing costs anything, or an uncertainty outside 0 to 1.
    """
    check("uncertainty", uncertainty)
    if uncertainty >= 1:
        raise ValueError(f"uncertainty={uncertainty}: relative, below 1")
    case = _Case(costs, step, machine, setup, batch_transfer or Handover())
    rate = case.rate()
    free = replace(case, step=StepTime())
    return Prediction(
        img_per_s=rate,
        low=rate / (1 + uncertainty),
        high=rate / (1 - uncertainty),
        bottleneck=case.bottleneck(),
        accelerator_utilization=min(1.0, rate * step.batch_s(setup.batch_size) / setup.batch_size),
        supply=case.supply(),
        accelerator_bound=max(1.0, free.rate() / rate) if free.costs_something else float("inf"),
    )


def crossover_batch(
    costs: StageCosts,
    step: StepTime,
    machine: Machine,
    setup: Setup,
    batch_transfer: Handover | None = None,
) -> float | None:
    """The batch size above which the loaders bind rather than the accelerator; None where they never do.

    Loading takes B × t, the step takes a + B × s: they cross at B = a / (t - s).
    """
    case = _Case(costs, step, machine, setup, batch_transfer or Handover())
    per_image = 1 / case.transform_supply() if case.load_s else 0.0
    if per_image <= step.per_image_s:
        return None
    return step.startup_s / (per_image - step.per_image_s)


def workers_to_saturate(
    costs: StageCosts,
    step: StepTime,
    machine: Machine,
    setup: Setup,
    batch_transfer: Handover | None = None,
) -> int | None:
    """The fewest workers that feed the main process; None where the cores or the storage cannot.

    Where the forward pass runs on the loaders' cores, all that these cores can do is asked for.
    """
    for workers in range(1, 2 * machine.cores + 1):
        case = _Case(
            costs, step, machine, replace(setup, workers=workers), batch_transfer or Handover()
        )
        wanted = 1 / case.main_s if case.main_s else float("inf")
        possible = case.cores_supply()
        brought = min(case.transform_supply(), case.storage_supply())
        if machine.shares_cores:
            wanted = min(wanted, possible)
        if min(brought, possible) >= wanted * (1 - 1e-9):
            return workers
    return None


@dataclass(frozen=True)
class _Case:
    costs: StageCosts
    step: StepTime
    machine: Machine
    setup: Setup
    batch_transfer: Handover

    @property
    def in_processes(self) -> bool:
        return self.setup.overlaps and self.setup.engine == "dataloader"

    @property
    def forward_s(self) -> float:
        return self.step.batch_s(self.setup.batch_size) / self.setup.batch_size

    @property
    def load_s(self) -> float:
        """Core seconds of an image until it lies in its batch, with as many loaders as there are."""
        busy = self.setup.workers if self.setup.overlaps else 0
        return self.costs.load_s * (self.machine.slowdown(busy) if busy else 1.0)

    @property
    def given_s(self) -> float:
        """Core seconds of an image for its way out of the loader's process."""
        return (
            self.batch_transfer.worker.batch_s(self.setup.batch_size) / self.setup.batch_size
            if self.in_processes
            else 0.0
        )

    @property
    def taken_s(self) -> float:
        """Core seconds of an image for its way into the main process."""
        return (
            self.batch_transfer.main.batch_s(self.setup.batch_size) / self.setup.batch_size
            if self.in_processes
            else 0.0
        )

    @property
    def main_s(self) -> float:
        """Seconds of an image in the main process, the wait for the device included."""
        return (
            self.taken_s
            + self.costs.h2d_s
            + self.forward_s
            + self.costs.d2h_s
            + self.costs.serialize_s
        )

    @property
    def costs_something(self) -> bool:
        return self.load_s + self.main_s > 0

    def core_seconds(self) -> dict[str, float]:
        """Core seconds of an image, by what they are spent on."""
        forward = self.forward_s * self.machine.forward_cores if self.machine.shares_cores else 0.0
        return {
            "accelerator": forward,
            "main": self.taken_s + self.costs.serialize_s,
            "transform": self.load_s + self.given_s,
        }

    def storage_supply(self) -> float:
        rate = self.machine.storage_bytes_per_s
        return (
            rate / self.costs.image_bytes
            if rate is not None and self.costs.image_bytes
            else float("inf")
        )

    def transform_supply(self) -> float:
        """Images a second of the loaders: one core each, while there is one.

        A DataLoader worker sends a finished batch in a thread of its own, while it loads the next one: the
        longer of the two sets its pace, both use cores.
        """
        if not self.setup.overlaps:
            return 1 / self.load_s if self.load_s else float("inf")
        own = max(self.load_s, self.given_s)
        if not own:
            return float("inf")
        return min(self.setup.workers / own, self.machine.cores / (self.load_s + self.given_s))

    def cores_supply(self) -> float:
        """Images a second that the cores allow: no more core seconds than cores, and less beside a forward pass.

        A forward pass of T threads waits for its slowest one, so that a loader on one of their T cores holds all
        of them up. Where a core is shared in equal parts, an image takes F + L: its forward pass, and what of its
        loading finds no free core. Loaders that have more to do than fits beside the pass (L > F) come to run
        side by side: F + F, and F + L / k once that is longer, k of them.
        """
        spent = sum(self.core_seconds().values())
        if not spent:
            return float("inf")
        conserved = self.machine.cores / spent
        if not (self.machine.shares_cores and self.setup.overlaps):
            return conserved
        free = self.machine.cores - self.machine.forward_cores
        load = max(0.0, self.load_s + self.given_s - free * self.forward_s)
        held_up = max(min(load, self.forward_s), load / min(self.setup.workers, self.machine.cores))
        return min(conserved, 1 / (self.main_s + held_up))

    def supply(self) -> dict[str, float]:
        """Images a second of each resource alone; what costs nothing is left out."""
        found = {
            "storage": self.storage_supply(),
            "transform": self.transform_supply(),
            "h2d": 1 / self.costs.h2d_s if self.costs.h2d_s else float("inf"),
            "accelerator": 1 / self.forward_s if self.forward_s else float("inf"),
            "main": 1 / self.main_s if self.main_s else float("inf"),
            "cores": self.cores_supply(),
        }
        return {name: rate for name, rate in found.items() if rate != float("inf")}

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
        """The resource that sets the pace; of a process that does several things, what takes it longest."""
        main = {"accelerator": self.forward_s, "h2d": self.costs.h2d_s}
        main["main"] = self.main_s - sum(main.values())
        if not self.setup.overlaps:
            return _largest(
                {**main, "transform": self.load_s, "storage": 1 / self.storage_supply()}
            )
        paces = {
            "main": self.main_s,
            "transform": 1 / self.transform_supply(),
            "storage": 1 / self.storage_supply(),
        }
        if 1 / self.cores_supply() > max(paces.values()) * (1 + 1e-9):
            return _largest(self.core_seconds())
        slowest = _largest(paces)
        return _largest(main) if slowest == "main" else slowest


def _largest(seconds: Mapping[str, float]) -> str:
    return max((name for name in RESOURCES if name in seconds), key=seconds.__getitem__)
