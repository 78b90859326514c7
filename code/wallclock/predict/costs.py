"""What a prediction is made from: costs of the stages, of the device, of the machine. All checked, all frozen."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

#: How stages can overlap.
ENGINES = ("serial", "dataloader", "threads")


def check(name: str, value: float, *, above_zero: bool = False) -> None:
    """Raise ValueError unless `value` is a finite number of at least 0, or above it."""
    if not math.isfinite(value) or value < 0 or (above_zero and value == 0):
        raise ValueError(
            f"{name}={value}: give a finite number {'above' if above_zero else 'of at least'} 0"
        )


def _check_all(instance: object) -> None:
    for field in fields(instance):  # type: ignore[arg-type]
        value = getattr(instance, field.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            check(f"{type(instance).__name__}.{field.name}", value)


@dataclass(frozen=True)
class StageCosts:
    """Seconds of one core per image, as a serial pass measures them; batch stages divided by their images.

    `h2d_s` and `d2h_s` are seconds of the link rather than of a core where the device is a GPU. `image_bytes`:
    what `read` takes from the storage. `variation`: standard deviation over mean of one image's loading time.

    Raises:
        ValueError: a number is negative, infinite or none at all.
    """

    read_s: float = 0.0
    decode_s: float = 0.0
    resize_s: float = 0.0
    normalize_s: float = 0.0
    assemble_s: float = 0.0
    h2d_s: float = 0.0
    d2h_s: float = 0.0
    serialize_s: float = 0.0
    image_bytes: float = 0.0
    variation: float = 0.0

    def __post_init__(self) -> None:
        _check_all(self)

    @staticmethod
    def of(
        samples: Mapping[str, Sequence[int]], n_images: int, image_bytes: float = 0.0
    ) -> StageCosts:
        """From a serial pass's samples: stage → nanoseconds of each call; stages that are not there cost nothing.

        Raises:
            ValueError: no image.
        """
        check("n_images", n_images, above_zero=True)
        names = [field.name for field in fields(StageCosts) if field.name.endswith("_s")]
        seconds = {
            name: sum(samples.get(name.removesuffix("_s"), ())) / 1e9 / n_images for name in names
        }
        an_image = [
            samples[stage]
            for stage in ("read", "decode", "resize", "normalize")
            if samples.get(stage)
        ]
        loads = [sum(times) for times in zip(*an_image, strict=False)]
        spread = (
            statistics.pstdev(loads) / statistics.fmean(loads)
            if len(loads) > 1 and any(loads)
            else 0.0
        )
        return StageCosts(**seconds, image_bytes=image_bytes, variation=spread)

    @property
    def load_s(self) -> float:
        """Seconds of one core until an image lies in its batch."""
        return self.read_s + self.decode_s + self.resize_s + self.normalize_s + self.assemble_s


@dataclass(frozen=True)
class StepTime:
    """Seconds that a batch takes: a part that every batch pays, and a part for each image.

    `variation`: standard deviation over mean of one batch's time.

    Raises:
        ValueError: a number is negative, infinite or none at all.
    """

    startup_s: float = 0.0
    per_image_s: float = 0.0
    variation: float = 0.0

    def __post_init__(self) -> None:
        _check_all(self)

    def batch_s(self, batch_size: int) -> float:
        """Seconds of a batch of that many images."""
        return self.startup_s + self.per_image_s * batch_size


@dataclass(frozen=True)
class Handover:
    """What bringing a batch from a loader's process to the main one costs on top of its stages, in core seconds.

    `worker`: sending it; `main`: mapping it, and the engine's own bookkeeping.
    """

    worker: StepTime = StepTime()
    main: StepTime = StepTime()


@dataclass(frozen=True)
class Machine:
    """Where it runs.

    `cores`: usable ones. `storage_bytes_per_s`: None where the images lie in memory (a warm page cache).
    `shares_cores`: the forward pass runs on the very cores that loading needs (device=cpu), on
    `forward_cores` of them. `contention`: (busy processes, factor): how much more of a core an image's loading
    costs with that many processes loading at once than in a serial pass; straight lines between, flat beyond.

    Raises:
        ValueError: no core; a bandwidth or factor that is zero, negative, infinite or none at all.
    """

    cores: int
    storage_bytes_per_s: float | None = None
    shares_cores: bool = False
    forward_cores: int = 1
    contention: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        check("Machine.cores", self.cores, above_zero=True)
        check("Machine.forward_cores", self.forward_cores, above_zero=True)
        if self.storage_bytes_per_s is not None:
            check("Machine.storage_bytes_per_s", self.storage_bytes_per_s, above_zero=True)
        for busy, factor in self.contention:
            check(f"Machine.contention[{busy}]", factor, above_zero=True)

    def slowdown(self, busy: int) -> float:
        """The factor on an image's loading with `busy` processes at it."""
        points = sorted(self.contention)
        if not points:
            return 1.0
        for (low, at_low), (high, at_high) in itertools.pairwise(points):
            if low <= busy <= high:
                return at_low + (at_high - at_low) * (busy - low) / (high - low)
        return points[0][1] if busy < points[0][0] else points[-1][1]


@dataclass(frozen=True)
class Setup:
    """How the job is run. `depth`: batches each worker may have ready (DataLoader's prefetch_factor).

    Raises:
        ValueError: an unknown engine, a negative count, an empty batch, or workers without a queue.
    """

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


def fit_step_time(points: Iterable[tuple[int, float]]) -> StepTime:
    """Startup and slope from (batch size, seconds of a batch).

    Least squares of the relative error, so that a batch of one counts as much as one of 256; neither part
    may be negative. Points of a single batch size tell the two apart no more: all is then per image.

    Raises:
        ValueError: no point, an empty batch, or a time that is no finite number above 0.
    """
    found = list(points)
    if not found:
        raise ValueError("no points to fit a step time to")
    for size, seconds in found:
        check("batch size", size, above_zero=True)
        check(f"seconds at batch {size}", seconds, above_zero=True)
    # Minimize sum((a x + b y - 1)^2) with x = 1/t, y = B/t: two normal equations.
    x, y = [1 / seconds for _, seconds in found], [size / seconds for size, seconds in found]
    xx, yy, xy = (
        sum(p * q for p, q in zip(*pair, strict=True)) for pair in ((x, x), (y, y), (x, y))
    )
    determinant = xx * yy - xy * xy
    if len({size for size, _ in found}) == 1:
        return StepTime(0.0, sum(y) / yy)
    startup, per_image = (
        (sum(x) * yy - sum(y) * xy) / determinant,
        (sum(y) * xx - sum(x) * xy) / determinant,
    )
    if startup < 0:
        return StepTime(0.0, sum(y) / yy)
    return StepTime(startup, per_image) if per_image >= 0 else StepTime(sum(x) / xx, 0.0)
