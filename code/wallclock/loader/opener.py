"""Opens a loader over images that were not listed or validated before, as its options say."""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from wallclock.check import Inspector
from wallclock.errors import Unavailable, UserError, install_hint
from wallclock.fetch.sources import Source, SourceReader
from wallclock.loader.lease import DeviceCopies, Leases, Lender, OwnArrays
from wallclock.loader.order import largest_batch
from wallclock.loader.output import Output, Workers
from wallclock.loader.prepare import BuildInPlace, in_place_stages, loaded_size, own_shape_stages
from wallclock.loader.processes import ForkedLoader
from wallclock.loader.ring import being_filled
from wallclock.loader.stream import EPOCH, StreamedBatches
from wallclock.loader.threads import Buffers, Feed, LendingLoader, ThreadLoader, worker_count
from wallclock.loader.transform import Transform, check_draws
from wallclock.machine import set_threads
from wallclock.preprocess import ADD_CROP, Preprocess, preprocess_of, size_pair
from wallclock.recipe import FAST, Limits, ModelSpec, Recipe
from wallclock.stages import normalize, transfer
from wallclock.stages.augment import Augment, Augmentation, draw
from wallclock.stages.decode import MODES

#: Sources at most that are looked at before the first is loaded.
_SAMPLED = 100


@dataclass(frozen=True)
class LoaderOptions:
    """How images are loaded.

    `size`: side of the square images, in pixels, if the recipe squashes. `recipe`: decoder,
    resizer, and `workers` threads, 0 for one a core. `limits`: above which an image is a failure.
    `seed`: of the crops and colours of `recipe.augment`, `augment`: their limits. `hashes`: whether
    the sha256 of each file is noted. `spare`: batches that the consumer may hold beside the latest
    (`ThreadLoader.take`). `output`: what the images are, where the recipe normalizes on the host.
    """

    size: int = 224
    recipe: Recipe = FAST
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    hashes: bool = False
    augment: Augment = field(default_factory=Augment)
    spare: int = 0
    output: Output = field(default_factory=Output)

    @cached_property
    def preprocess(self) -> Preprocess:
        """The geometry. Raises UsageError: the recipe's is not understood."""
        return preprocess_of(self.recipe, self.size, sizes_differ=True)

    @property
    def keeps_sizes(self) -> bool:
        """Whether images keep sizes of their own, so that a batch has a list of them."""
        return not self.preprocess.one_size and self.augment.transform is None

    @property
    def draws(self) -> bool:
        """Whether anything of an image is random."""
        return self.recipe.augment != "none" or self.augment.transform is not None

    def check(self, crew: Workers) -> None:
        """Raise UserError: settings do not go together."""
        augment, output, processes = self.augment, self.output, crew.processes
        check_draws(augment, max(worker_count(self.recipe), processes), processes)
        if self.recipe.augment != "none" and augment.jitter and output.channels != "RGB":
            fix = "jitter is of RGB; set augment=Augment(jitter=0)"
            raise UserError(f"output.channels={output.channels}: {fix}")
        if output.dtype != "uint8" and augment.transform is None:
            output.check_statistics()
        if not self.keeps_sizes:
            return
        differ = f"preprocess={self.preprocess}: images differ in size"
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
        sources: what the positions name; may compute its items, which any thread asks for. A
            stream is both sources and batches.
        batches: positions, in order; past the last source they start over, in the next epoch.
            May compute its items (`order.LazyBatches`); else there is a pass over them first.
        processes: among which the threads are divided; they are forked on entry. A batch then has
            at most `recipe.batch_size` images. A stream is for one process.

    Returns:
        A context manager that is an iterator of `Batch`: images uint8 (n, *canvas, 3), valid
        until the next batch is requested. `extras.infos` has each row's length, size and, with
        `hashes`, sha256.

    Raises:
        Unavailable: the recipe's decoder or resizer is not installed.
        UserError: while iterating: an image needs a library that is not installed.
    """
    recipe, output = options.recipe, options.output
    if "opencv" in (recipe.decoder, recipe.resizer) or recipe.augment == "cpu":
        _single_threaded_opencv(recipe)
    feed = SourceFeed(sources, options)
    model = ModelSpec("sources", "none", input_px=options.size, mean=output.mean, std=output.std)
    build, buffers = _rows(options, model)

    def open_threads(batches: Any, workers: int, buffers: Buffers, *lock: Any) -> ThreadLoader:
        of_thread = replace(recipe, workers=workers)
        with _outside_inference_mode():
            return ThreadLoader(feed, of_thread, model, batches, build, buffers, *lock)

    threads = worker_count(recipe)
    if processes == 1 or not isinstance(batches, Sequence):
        if buffers.dtype is object:
            # Images of any size wait in it: enough to keep the workers busy, and one batch ahead.
            size = largest_batch(batches)
            n = being_filled(threads, size) + 1 + options.spare
            buffers = replace(buffers, made=[np.empty((size, 1), object) for _ in range(n)])
        return open_threads(batches, recipe.workers, buffers)
    threads = max(threads, processes)
    return ForkedLoader(open_threads, batches, recipe.batch_size, buffers, processes, threads)


class SourceFeed(Feed):
    """Sources, each inspected once it is read."""

    def __init__(self, sources: Sequence[Source] | StreamedBatches, options: LoaderOptions) -> None:
        if isinstance(sources, StreamedBatches):
            # What comes, is not known: announcing images costs 5 % of a thumbnail's time.
            n, remote, self.item_at = EPOCH, True, sources.item  # type: ignore[method-assign]
            self.keeps = True
        else:
            n = len(sources)
            remote = any(sources[at].remote for at in range(0, n, -(-n // _SAMPLED) or 1))
            self._sources = sources
            self.keeps = getattr(sources, "keeps", False)
        super().__init__(SourceReader(options.limits, fetches_ahead=remote), n)
        self.inspector = Inspector(
            options.limits,
            options.recipe.decoder,
            draw=_draws(n, options) if options.draws else None,
            hashes=options.hashes,
            rotate=options.preprocess.rotate,
        )

    def item_at(self, position: int) -> Source:
        """The source at a position."""
        return self._sources[position % self.n]


def _draws(n: int, options: LoaderOptions) -> Callable[[int, int, int], Augmentation]:
    def draw_at(width: int, height: int, position: int) -> Augmentation:
        epoch, index = divmod(position, n)
        return draw(width, height, options.seed, epoch, index, options.augment)

    return draw_at


def _outside_inference_mode() -> AbstractContextManager[Any]:
    """The mode belongs to the thread that opens; a worker could not write to buffers made in it."""
    torch = sys.modules.get("torch")
    return torch.inference_mode(False) if torch else nullcontext()


def _single_threaded_opencv(recipe: Recipe) -> None:
    try:
        set_threads(recipe, uses_torch=False)
    except ImportError as error:
        needs = "augmentation, and a recipe with opencv, needs OpenCV"
        raise Unavailable(f"{needs}: {install_hint('augment')}") from error


# --- what a row of a batch is ---------------------------------------------------------------------


def _rows(options: LoaderOptions, model: ModelSpec) -> tuple[BuildInPlace, Buffers]:
    """What binds the stages of one thread, and the memory that they fill.

    Where images keep sizes of their own, a row is an array of one object. Raises UserError.
    """
    recipe, output, preprocess = options.recipe, options.output, options.preprocess
    mode, floats = output.channels, recipe.normalize_on == "host"
    transform = _transform(options)
    build: BuildInPlace = in_place_stages
    if not preprocess.one_size:
        most = options.limits.max_pixels
        build = partial(own_shape_stages, most_pixels=most, mode=mode, transform=transform)
    elif mode != "RGB" or transform is not None:
        build = partial(in_place_stages, mode=mode, transform=transform)
    if options.keeps_sizes:
        return build, Buffers((1,), object)
    size = transform.size if transform else loaded_size(recipe, model)
    row = (MODES[mode], *size) if floats else (*size, MODES[mode])
    dtype = output.storage if floats else np.uint8
    return build, Buffers(row, dtype, recipe.pins, options.spare)


def _transform(options: LoaderOptions) -> Transform | None:
    augment, preprocess, output = options.augment, options.preprocess, options.output
    if augment.transform is None:
        return None
    if augment.size is None and not preprocess.one_size:
        raise UserError(
            f"preprocess={preprocess}: images differ in size; say what augment.transform makes of "
            f"them, as in Augment(size=224), or {ADD_CROP}"
        )
    size = preprocess.canvas if augment.size is None else size_pair(augment.size, "augment.size")
    return Transform(augment, size, output.channels, options.recipe.normalize_on == "host")


def lender_of(options: LoaderOptions) -> Lender:
    """How a batch leaves its buffer: as a list of arrays, or as one."""
    output = options.output
    if options.keeps_sizes:
        return OwnArrays(output.convert)
    if output.device == "cpu":
        return Leases(output.hold, output.convert)
    h2d = transfer.make(output.device).h2d
    convert: Callable[[Any], Any] = _unchanged
    if output.dtype != "uint8" and options.recipe.normalize_on == "device":
        convert = _normalized_there(output)
    return DeviceCopies(transfer.StreamCopy(lambda rows: h2d(output.convert(rows)), convert))


def _normalized_there(output: Output) -> Callable[[Any], Any]:
    import torch

    to_floats = normalize.on_device(output.mean, output.std, output.device)
    dtype = getattr(torch, output.dtype)
    return lambda images: to_floats(images).to(dtype).contiguous()


def _unchanged(images: Any) -> Any:
    return images
