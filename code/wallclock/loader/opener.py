"""Opens a loader over images that were not listed or validated before, as its options say."""

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from wallclock.check import Inspector
from wallclock.errors import Unavailable, UserError, install_hint
from wallclock.fetch.sources import Source, SourceReader
from wallclock.loader.lease import DeviceCopies, Leases, Lender, OwnArrays
from wallclock.loader.loading import Loading
from wallclock.loader.output import Output
from wallclock.loader.prepare import BuildInPlace, in_place_stages
from wallclock.loader.processes import ForkedLoader
from wallclock.loader.resizing import unchanged
from wallclock.loader.ring import being_filled
from wallclock.loader.stream import EPOCH, StreamedBatches
from wallclock.loader.threads import Buffers, Feed, LendingLoader, ThreadLoader, worker_count
from wallclock.loader.transform import Transform, check_draws
from wallclock.preprocess import ADD_CROP
from wallclock.recipe import FAST, Limits, Recipe
from wallclock.stages import normalize, transfer
from wallclock.stages.augment import Augment, Augmentation, draw
from wallclock.stages.decode import MODES

#: Sources at most that are looked at before the first is loaded.
_SAMPLED = 100


@dataclass(frozen=True)
class LoaderOptions:
    """How images are loaded; nothing of it is open.

    `batch_size`: images of a batch at most. `threads`: of all processes. `limits`: above which an
    image is a failure. `hashes`: whether the sha256 of each file is noted. `pins`: whether batches
    are page-locked. `spare`: batches that the consumer may hold beside the latest.
    """

    loading: Loading
    batch_size: int
    threads: int
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    hashes: bool = False
    augment: Augment = field(default_factory=Augment)
    pins: bool = False
    spare: int = 0
    output: Output = field(default_factory=Output)

    @classmethod
    def of(cls, px: int, recipe: Recipe = FAST, **more: Any) -> "LoaderOptions":
        """Those of a recipe, for a network of `px` × `px` pixels."""
        loading, threads = Loading.of(recipe, px), worker_count(recipe)
        return cls(loading, recipe.batch_size, threads, pins=recipe.pins, **more)

    @property
    def keeps_sizes(self) -> bool:
        """Whether images keep sizes of their own, so that a batch has a list of them."""
        return not self.loading.geometry.one_size and self.augment.transform is None

    def check(self, processes: int) -> None:
        """Raise UserError: settings do not go together."""
        augment, output, geometry = self.augment, self.output, self.loading.geometry
        check_draws(augment, max(self.threads, processes), processes)
        if self.loading.crops and self.loading.name != "squash":
            why = "goes without augmentation, which crops by itself"
            raise UserError(f"preprocess={geometry} {why}; leave out one of them")
        if self.loading.crops and augment.jitter and output.channels != "RGB":
            fix = "jitter is of RGB; set augment=Augment(jitter=0)"
            raise UserError(f"output.channels={output.channels}: {fix}")
        if output.dtype != "uint8" and augment.transform is None:
            output.check_statistics()
        if not self.keeps_sizes:
            return
        differ = f"preprocess={geometry}: images differ in size"
        if output.dtype != "uint8" or output.pins:
            what = output.pins or f"output={output.dtype}"
            raise UserError(f"{differ}; {what} needs one size: {ADD_CROP}")
        if processes > 1:
            raise UserError(f"processes={processes}: {differ}, which needs processes=1")


def open_loader(
    sources: Sequence[Source] | StreamedBatches,
    batches: Sequence[Sequence[int]] | StreamedBatches,
    options: LoaderOptions,
    processes: int = 1,
) -> LendingLoader:
    """Read, inspect, decode and resize these images in threads.

    Args:
        sources: what the positions name; any thread asks for its items. A stream is both sources
            and batches, and is for one process.
        batches: positions, in order; past the last source they start over, in the next epoch.
        processes: among which the threads are divided; they are forked on entry.

    Raises Unavailable: the decoder or the resizer is not installed.
    """
    loading, threads = options.loading, options.threads
    if "opencv" in (loading.decoder, loading.resizer) or loading.crops:
        _single_threaded_opencv()
    feed = _feed_of(sources, options)
    build, buffers = _rows(options)

    def open_threads(batches: Any, threads: int, buffers: Buffers, *lock: Any) -> ThreadLoader:
        # The mode belongs to this thread; a worker could not write to buffers made in it.
        torch = sys.modules.get("torch")
        with torch.inference_mode(False) if torch else nullcontext():
            return ThreadLoader(feed, loading, threads, batches, build, buffers, *lock)

    if processes == 1 or not isinstance(batches, Sequence):
        return open_threads(batches, threads, buffers)
    threads = max(threads, processes)
    return ForkedLoader(open_threads, batches, options.batch_size, buffers, processes, threads)


def _feed_of(sources: Sequence[Source] | StreamedBatches, options: LoaderOptions) -> Feed:
    """Sources, each inspected once it is read."""
    item_at: Callable[[int], Source]
    if isinstance(sources, StreamedBatches):
        # What comes, is not known: announcing images costs 5 % of a thumbnail's time.
        n, is_remote, keeps, item_at = EPOCH, True, True, sources.item
    else:
        n, keeps = len(sources), getattr(sources, "keeps", False)
        is_remote = any(sources[at].remote for at in range(0, n, -(-n // _SAMPLED) or 1))
        item_at = partial(_source_at, sources, n)
    draws = options.loading.crops or options.augment.transform is not None
    inspector = Inspector(
        options.limits,
        options.loading.decoder,
        draw=partial(_draw, options, n) if draws else None,
        hashes=options.hashes,
        rotate=options.loading.geometry.rotate,
    )
    reader = SourceReader(options.limits, fetches_ahead=is_remote)
    return Feed(reader, n, item_at, inspector, keeps)


def _source_at(sources: Sequence[Source], n: int, position: int) -> Source:
    return sources[position % n]


def _draw(options: LoaderOptions, n: int, width: int, height: int, position: int) -> Augmentation:
    epoch, index = divmod(position, n)
    return draw(width, height, options.seed, epoch, index, options.augment)


def _single_threaded_opencv() -> None:
    """OpenCV's own pool would resize one image on all cores, beside the other threads."""
    try:
        import cv2
    except ImportError as error:
        needs = "augmentation, and resizer=opencv, needs OpenCV"
        raise Unavailable(f"{needs}: {install_hint('augment')}") from error
    cv2.setNumThreads(1)


def _rows(options: LoaderOptions) -> tuple[BuildInPlace, Buffers]:
    """What binds the stages of one thread, and the memory: of images of any size, of objects."""
    loading, augment = options.loading, options.augment
    transform = None if augment.transform is None else Transform(augment, loading)
    most_pixels = options.limits.max_pixels
    build = partial(in_place_stages, transform=transform, most_pixels=most_pixels)
    if options.keeps_sizes:
        # Images of any size wait in it: enough to keep the workers busy, and one batch ahead.
        n = being_filled(options.threads, options.batch_size) + 1 + options.spare
        made = [np.empty((options.batch_size, 1), object) for _ in range(n)]
        return build, Buffers((1,), object, made=made)
    size, channels = transform.size if transform else loading.geometry.canvas, MODES[loading.mode]
    if loading.statistics is None:
        return build, Buffers((*size, channels), np.uint8, options.pins, options.spare)
    # numpy has no bfloat16: its bits lie in uint16.
    dtype = options.output.dtype.replace("bfloat16", "uint16")
    return build, Buffers((channels, *size), dtype, options.pins, options.spare)


def lender_of(options: LoaderOptions) -> Lender:
    """How a batch leaves its buffer: as a list of arrays, or as one."""
    output = options.output
    if options.keeps_sizes:
        return OwnArrays(output.convert)
    if output.device == "cpu":
        return Leases(output.convert, output.hold)
    h2d = transfer.make(output.device).h2d
    normalizes = output.dtype != "uint8" and options.loading.statistics is None
    convert = _normalized_there(output) if normalizes else unchanged
    return DeviceCopies(transfer.StreamCopy(lambda rows: h2d(output.convert(rows)), convert))


def _normalized_there(output: Output) -> Callable[[Any], Any]:
    import torch

    to_floats = normalize.on_device(output.mean, output.std, output.device)
    dtype = getattr(torch, output.dtype)
    return lambda images: to_floats(images).to(dtype).contiguous()
