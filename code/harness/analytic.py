"""The textbook's formulas for one batch of bytes: transform against accelerator, supply and demand.

After Mohan et al., "Analyzing and Mitigating Data Bottlenecks in Deep Learning Training" (VLDB
2021), and Janapa Reddi, "Machine Learning Systems"; mlsysim's `TransformationModel` and `DataModel`
compute the same, but for a supply of zero, which is an error here and not infinite utilization.
"""

from dataclasses import dataclass

from harness.pipeline_model import check


@dataclass(frozen=True)
class Overlap:
    """Two stages that overlap perfectly: the larger one sets the pace."""

    transform_s: float
    step_s: float

    @property
    def utilization(self) -> float:
        """Accelerator time over the larger of the two, 0 to 1."""
        return self.step_s / max(self.transform_s, self.step_s)

    @property
    def slowdown(self) -> float:
        """How many times longer a step takes than the accelerator needs."""
        return max(self.transform_s, self.step_s) / self.step_s


def overlap(
    batch_size: int, sample_bytes: float, transform_bytes_per_s: float, step_s: float
) -> Overlap:
    """A batch of samples through a transform of given throughput, overlapping an accelerator step.

    transform = batch size × bytes of a sample / throughput.

    Raises:
        ValueError: a number is zero, negative, infinite or NaN.
    """
    check("batch_size", batch_size, above_zero=True)
    check("sample_bytes", sample_bytes, above_zero=True)
    check("transform_bytes_per_s", transform_bytes_per_s, above_zero=True)
    check("step_s", step_s, above_zero=True)
    return Overlap(batch_size * sample_bytes / transform_bytes_per_s, step_s)


@dataclass(frozen=True)
class Feed:
    """What the paths to the accelerator supply, against its demand."""

    demand_bytes_per_s: float
    supply_bytes_per_s: float
    bottleneck: str

    @property
    def utilization(self) -> float:
        """Demand over supply; above 1 the accelerator waits."""
        return self.demand_bytes_per_s / self.supply_bytes_per_s

    @property
    def is_stalled(self) -> bool:
        """Whether the demand exceeds the slowest path."""
        return self.utilization > 1


def feed(demand_bytes_per_s: float, **paths: float) -> Feed:
    """The slowest of the named paths (`storage=2e9, interconnect=16e9`, bytes per second).

    Raises:
        ValueError: no path, or a number that is zero, negative, infinite or NaN.
    """
    if not paths:
        raise ValueError("no path to the accelerator: give bytes per second, as in storage=2e9")
    check("demand_bytes_per_s", demand_bytes_per_s, above_zero=True)
    for name, rate in paths.items():
        check(f"{name} in bytes per second", rate, above_zero=True)
    slowest = min(paths, key=paths.__getitem__)
    return Feed(demand_bytes_per_s, paths[slowest], slowest)
