"""The inputs of a prediction: costs of the stages, the device, the machine. Checked and frozen."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from harness.spec import ENGINES
from wallclock.clock import LOADING_STAGES, STAGES


def check(name: str, value: float, *, above_zero: bool = False) -> None:
    """Raise ValueError unless `value` is a finite number of at least 0, or above it."""
    if not math.isfinite(value) or value < 0 or (above_zero and value == 0):
        least = "above" if above_zero else "of at least"
        raise ValueError(f"{name}={value}: give a finite number {least} 0")


class _Checked:
    """Raises ValueError for a number that is negative, infinite or NaN."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check(f"{type(self).__name__}.{name}", value)


@dataclass(frozen=True)
class StageCosts(_Checked):
    """Core seconds per image, as a serial pass measures them; batch stages divided by their images.

    `h2d_s` and `d2h_s` are seconds of the link rather than of a core where the device is a GPU.
    `image_bytes`: what `read` takes from the storage; `wait_s`: its wait for that, without a core.
    `variation`: standard deviation over mean of one image's loading time.
    """

    read_s: float = 0.0
    decode_s: float = 0.0
    resize_s: float = 0.0
    normalize_s: float = 0.0
    assemble_s: float = 0.0
    h2d_s: float = 0.0
    d2h_s: float = 0.0
    serialize_s: float = 0.0
    wait_s: float = 0.0
    image_bytes: float = 0.0
    variation: float = 0.0

    @classmethod
    def from_samples(cls, samples: Mapping[str, Sequence[int]], n_images: int) -> Self:
        """From a serial pass: stage → nanoseconds of each call; absent stages cost 0."""
        check("n_images", n_images, above_zero=True)
        names = set(STAGES) - {"forward"}
        seconds = {f"{name}_s": sum(samples.get(name, ())) / 1e9 / n_images for name in names}
        # `assemble` is once a batch.
        per_image = [samples[stage] for stage in LOADING_STAGES[:-1] if samples.get(stage)]
        loads = [sum(times) for times in zip(*per_image, strict=False)]
        varies = len(loads) > 1 and any(loads)
        variation = statistics.pstdev(loads) / statistics.fmean(loads) if varies else 0.0
        return cls(**seconds, variation=variation)

    @property
    def load_s(self) -> float:
        """Core seconds until an image is in its batch."""
        return self.read_s + self.decode_s + self.resize_s + self.normalize_s + self.assemble_s


@dataclass(frozen=True)
class StepTime(_Checked):
    """Seconds of a batch: fixed, and for each image; `variation`: deviation over mean of one."""

    fixed_s: float = 0.0
    per_image_s: float = 0.0
    variation: float = 0.0

    def batch_s(self, batch_size: int) -> float:
        """Seconds of a batch of that many images."""
        return self.fixed_s + self.per_image_s * batch_size

    @classmethod
    def fit(cls, points: Iterable[tuple[int, float]]) -> Self:
        """Fixed part and slope from (batch size, seconds of a batch). Raises ValueError: no point.

        Least squares of the relative error; neither part may be negative. Points of a single batch
        size cannot separate the two: all is then per image.
        """
        measured = list(points)
        if not measured:
            raise ValueError("no points to fit a step time to")
        for size, seconds in measured:
            check("batch size", size, above_zero=True)
            check(f"seconds at batch {size}", seconds, above_zero=True)
        # Minimize sum((a x + b y - 1)^2) with x = 1/t, y = B/t: two normal equations.
        x = [1 / seconds for _, seconds in measured]
        y = [size / seconds for size, seconds in measured]
        xx, yy = sum(p * p for p in x), sum(q * q for q in y)
        xy = sum(p * q for p, q in zip(x, y, strict=True))
        only_slope = cls(0.0, sum(y) / yy)
        if len({size for size, _ in measured}) == 1:
            return only_slope
        determinant = xx * yy - xy * xy
        fixed = (sum(x) * yy - sum(y) * xy) / determinant
        per_image = (sum(y) * xx - sum(x) * xy) / determinant
        if fixed < 0:
            return only_slope
        return cls(fixed, per_image) if per_image >= 0 else cls(sum(x) / xx, 0.0)


@dataclass(frozen=True)
class BatchTransfer:
    """Core seconds of a batch between processes: `worker` sends it, `main` maps it."""

    worker: StepTime = StepTime()
    main: StepTime = StepTime()


@dataclass(frozen=True)
class Machine:
    """Where it runs.

    `cores`: usable. `storage_bytes_per_s`: None where the images are in memory. `shares_cores`: the
    forward pass runs on the very cores that loading needs (device=cpu), on `forward_cores` of
    them. `contention`: (busy processes, factor): how much more core time loading costs with that
    many processes loading than in a serial pass. Straight lines between, flat beyond. `gpu`: the
    device is one: with engine `threads`, h2d, forward and d2h overlap.

    Raises ValueError: no core; a bandwidth or factor that is not a finite number above 0.
    """

    cores: int
    storage_bytes_per_s: float | None = None
    shares_cores: bool = False
    forward_cores: int = 1
    contention: tuple[tuple[int, float], ...] = ()
    gpu: bool = False

    def __post_init__(self) -> None:
        check("Machine.cores", self.cores, above_zero=True)
        check("Machine.forward_cores", self.forward_cores, above_zero=True)
        if self.storage_bytes_per_s is not None:
            check("Machine.storage_bytes_per_s", self.storage_bytes_per_s, above_zero=True)
        for busy, factor in self.contention:
            check(f"Machine.contention[{busy}]", factor, above_zero=True)

    def slowdown(self, busy: int) -> float:
        """The factor on an image's loading with `busy` processes loading."""
        points = sorted(self.contention) or [(1, 1.0)]
        for (low, at_low), (high, at_high) in pairwise(points):
            if low <= busy <= high:
                return at_low + (at_high - at_low) * (busy - low) / (high - low)
        return points[0][1] if busy < points[0][0] else points[-1][1]


@dataclass(frozen=True)
class JobSetup:
    """How the job is run. `depth`: batches ahead of each worker. Raises ValueError: impossible."""

    workers: int = 0
    batch_size: int = 32
    engine: str = "dataloader"
    depth: int = 2

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ValueError(f"engine={self.engine}: one of {', '.join(ENGINES)}")
        if self.workers < 0 or self.batch_size < 1 or self.depth < 1:
            raise ValueError(f"{self}: workers from 0, a batch and a queue of at least 1")

    @property
    def overlaps(self) -> bool:
        """Whether anything loads while the device computes."""
        return self.engine != "serial" and self.workers > 0
