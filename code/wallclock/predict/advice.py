"""What would make a job faster: the fixes, what each takes, and what it brings.

`FIXES` has their names and words. `wallclock trace` predicts them from the seconds of a traced
program, by the formulas here; `make diagnose` measures the costs with each fix instead. Both give
intervals by `intervals.gain`, and both recommend what `Gain.is_recommended` says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log2
from typing import Self

from wallclock.clock import LOADING_STAGES
from wallclock.predict.intervals import Gain, gain, reach
from wallclock.predict.pace import Pace
from wallclock.predict.pictures import (
    Bound,
    Decoded,
    Library,
    Resized,
    Target,
    between,
    fraction,
    is_jpeg,
)

#: Core time of an image's loading with twice as many cores at work, at worst: they share caches and
#: memory. An assumption; the reference run has two cores.
_CONTENTION = 1.25
#: Workers a core where they wait for the storage.
_WAITING_PER_CORE = 4
#: Bytes of a batch as uint8 over those as float32, at worst and at best: other costs may remain.
_UINT8_BYTES = 0.375, 0.125
#: Of a read's time, what the smaller file of a thumbnail leaves at least: it takes a round trip.
_SMALL_READ = 0.5, 0.1
#: Of the time of reads in pieces, what one read of all of a file takes.
_ONE_READ = 1.0, 0.25
#: Thumbnails pay off for pictures of so many times their pixels.
_WORTH_KEEPING = 4.0
#: Costs of less than a hundredth of the present ones are beyond what a trace tells.
_MOST_GAIN = 100.0
_BOUNDS: tuple[Bound, ...] = ("low", "mid", "high")


@dataclass(frozen=True)
class Job:
    """A job as it is: what an image takes in each part, and who does it.

    `seconds`: of an image, a core's if nothing else is said: `read`; `wait`, for the storage, no
    core's; `decode`, `resize`, `normalize`; `transform`, by named functions; `other`, all other
    Python where images are loaded; `assemble`; `send`, a batch to another process; `h2d`; `model`,
    with the cores to itself; `main`, what the main thread does beside all of these.

    `workers`: 0 where the main thread loads. `engine`: what they are, or would be: `dataloader` or
    `threads`. `model_cores`: of the loaders' cores, those that the model takes.
    `saved_by_loader_s`: of `main`, what it would at most not do if others loaded the images.
    `loader`: what this package's own loader decodes and resizes with. `source`: where the images
    lie: `files`, `zip` or `urls`.
    """

    seconds: Mapping[str, float]
    workers: int
    engine: str
    batch_size: int
    cores: int
    model_cores: int = 0
    has_gpu: bool = False
    source: str = "files"
    saved_by_loader_s: float = 0.0
    decoded: Sequence[Decoded] = ()
    resized: Sequence[Resized] = ()
    target: Target | None = None
    loader: Library = "native"

    def of(self, *parts: str) -> float:
        """Seconds of an image in these parts together."""
        return sum(self.seconds.get(part, 0.0) for part in parts)

    @property
    def load_s(self) -> float:
        """Core seconds of loading an image."""
        return self.of(*LOADING_STAGES, "transform", "other")

    @property
    def waits(self) -> bool:
        """Whether loading waits for the storage more than it works."""
        return self.of("wait") > self.load_s

    def with_factors(self, factors: Mapping[str, float]) -> Self:
        """The same with the seconds of some parts multiplied."""
        changed = {part: s * factors.get(part, 1.0) for part, s in self.seconds.items()}
        return replace(self, seconds=changed)

    def img_per_s(self) -> float:
        """The rate; infinite where nothing but waits costs."""
        return Pace(
            self.load_s,
            self.of("model"),
            self.cores,
            self.workers,
            self.model_cores,
            self.of("wait"),
            self.of("send") if self.engine == "dataloader" else 0.0,
            self.of("h2d"),
            self.of("main"),
        ).img_per_s()


@dataclass(frozen=True)
class Fix:
    """A change of a job.

    `title`: what to do, with a place for a number. `cost`: what it takes. `stages`: whose time it
    shortens. `applies`, `apply`: whether a job has what it changes, and the job with it, at an end
    of the interval; without them, the costs can only be measured. `new_files`: whether it takes a
    pass over all images; `is_short`: whether it changes a line or two.
    """

    name: str
    title: str
    cost: str
    stages: tuple[str, ...]
    applies: Callable[[Job], bool] = field(default=lambda job: False)
    apply: Callable[[Job, Bound], Job] = field(default=lambda job, bound: job)
    new_files: bool = False
    is_short: bool = False

    def gain(self, job: Job, errors: Sequence[float]) -> Gain:
        """Times as many images per second with it; `errors`: of any prediction, relative."""
        return gain_of(job, [self.apply(job, bound) for bound in _BOUNDS], errors)


def gain_of(job: Job, changed: Sequence[Job], errors: Sequence[float]) -> Gain:
    """The gain of a job that was changed, once for each end of the interval and its middle."""
    now = job.img_per_s()
    rates = [min(each.img_per_s(), _MOST_GAIN * now) for each in changed]
    return gain([now] * len(rates), rates, reach(*errors) - 1)


def workers_for(cores: int, *, waits: bool) -> int:
    """How many workers to have: one a core, and more of them where they wait for the storage."""
    return cores * (_WAITING_PER_CORE if waits else 1)


def _most_workers(job: Job) -> int:
    return workers_for(job.cores, waits=job.waits)


def _resizes_whole_jpegs(job: Job) -> bool:
    if job.target is None or job.target.mode == "crop":
        return False
    return any(is_jpeg(kind.format) for kind in job.decoded)


def _are_large(job: Job) -> bool:
    """Whether the pictures have so many more pixels than thumbnails that these pay off."""
    target = job.target
    if target is None or target.mode == "crop" or not job.decoded:
        return False
    pixels = sum(kind.count * kind.size[0] * kind.size[1] for kind in job.decoded)
    kept = target.thumbnail_px**2 * sum(kind.count for kind in job.decoded)
    return pixels > _WORTH_KEEPING * kept


def _decoding(
    job: Job, bound: Bound, decoded: Sequence[Decoded], resized: Sequence[Resized]
) -> Job:
    """The same with other pictures, or other ways to decode and to resize them."""
    return job.with_factors(
        {
            "decode": fraction(job.decoded, decoded, bound),
            "resize": fraction(job.resized, resized, bound),
        }
    )


def _shrunk(job: Job) -> tuple[list[Decoded], list[Resized]]:
    """JPEGs at the smallest scale that suffices, and the resizes that are left."""
    decoded, resized = list(job.decoded), list(job.resized)
    if job.target is None or not any(is_jpeg(kind.format) for kind in decoded):
        return decoded, resized
    target = job.target
    return [kind.shrunk(target) for kind in decoded], [kind.shrunk(target) for kind in resized]


def _loader_for(job: Job, bound: Bound) -> Job:
    decoded, resized = _shrunk(job)
    ours = [replace(k, backend=job.loader) if is_jpeg(k.format) else k for k in decoded]
    resized = [replace(kind, backend=job.loader) for kind in resized]
    return _decoding(job, bound, ours, resized).with_factors({"read": between(bound, *_ONE_READ)})


def _open_images(job: Job, bound: Bound) -> Job:
    """Threads that write uint8 into the batch: nothing is collated or sent between processes."""
    factors = {"assemble": 0.0, "send": 0.0, "other": between(bound, 1, 0)}
    if job.has_gpu:  # which normalizes
        factors |= {"normalize": 0.0, "h2d": between(bound, *_UINT8_BYTES)}
    saved_s = between(bound, 0, job.saved_by_loader_s)
    factors["main"] = 1 - saved_s / job.of("main") if saved_s else 1.0
    if job.source == "urls":  # which are fetched ahead, as many at a time as the server takes
        factors["wait"] = between(bound, 1, 0)
    changed = _with_workers(_loader_for(job, bound), bound).with_factors(factors)
    return replace(changed, engine="threads")


def _with_workers(job: Job, bound: Bound) -> Job:
    """On more cores at once, loading costs each more: they share caches and memory.

    With more reads at a time, the storage gives each its time, or all of them together.
    """
    workers = _most_workers(job)
    factors = {}
    busy, more = min(job.cores, max(1, job.workers)), min(job.cores, workers)
    if more > busy:
        slower = _CONTENTION ** (log2(more / busy) * between(bound, 1, 0))
        parts = ("read", "decode", "resize", "normalize", "transform", "other")
        factors = dict.fromkeys(parts, slower)
    more_reads = max(1.0, workers / max(1, job.workers))
    factors["wait"] = more_reads ** between(bound, 1, 0)
    return replace(job.with_factors(factors), workers=workers)


def _thumbnails(job: Job, bound: Bound) -> Job:
    if job.target is None:
        return job
    decoded = [kind.as_thumbnails(job.target) for kind in job.decoded]
    resized = [kind.as_thumbnails(job.target) for kind in job.resized]
    now, then = (sum(kind.n_bytes for kind in kinds) for kinds in (job.decoded, decoded))
    read = min(1.0, max(then / now if now else 1.0, between(bound, *_SMALL_READ)))
    return _decoding(job, bound, decoded, resized).with_factors({"read": read, "wait": read})


_SLIGHTLY = "pixels differ slightly"
#: Name → fix. The numbers of titles are pixels, workers, images and the name of a dtype.
FIXES: Mapping[str, Fix] = {
    fix.name: fix
    for fix in (
        Fix(
            "thumbnails",
            "thumbnails of {} px, kept for the next runs",
            "one pass over the images, without EXIF; pays off from the second run on",
            ("read", "decode", "resize"),
            _are_large,
            _thumbnails,
            new_files=True,
        ),
        Fix(
            "scaled decode",
            "JPEGs decoded at a reduced scale",
            _SLIGHTLY,
            ("decode", "resize"),
            lambda job: _shrunk(job)[0] != [*job.decoded],
            lambda job, bound: _decoding(job, bound, *_shrunk(job)),
            is_short=True,
        ),
        Fix(
            "loader_for",
            "wallclock.loader_for in your own dataset",
            _SLIGHTLY,
            ("decode", "resize"),
            _resizes_whole_jpegs,
            _loader_for,
            is_short=True,
        ),
        Fix(
            "open_images",
            "wallclock.open_images, a loader with threads",
            f"another loop; {_SLIGHTLY}",
            (*LOADING_STAGES, "h2d"),
            lambda job: bool(job.decoded) and job.target is not None,
            _open_images,
        ),
        Fix(
            "workers",
            "{} workers",
            "memory of each process",
            LOADING_STAGES,
            lambda job: _most_workers(job) > job.workers,
            _with_workers,
            is_short=True,
        ),
        Fix("batch", "batches of {}", "memory on the device", ("forward",)),
        Fix("dtype", "{} forward pass", "check the vectors on your task", ("forward",)),
    )
}
