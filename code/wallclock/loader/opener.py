"""Opens the loader of threads over images that were not listed or validated before."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from wallclock.check import ImageInfo, Inspector
from wallclock.errors import Unavailable, install_hint
from wallclock.fetch.sources import Source, SourceReader
from wallclock.loader.order import largest_batch
from wallclock.loader.output import Output
from wallclock.loader.processes import ForkedLoader
from wallclock.loader.rows import rows_of
from wallclock.loader.stream import EPOCH, StreamedBatches
from wallclock.loader.threads import Feed, ThreadLoader, worker_count
from wallclock.machine import set_threads
from wallclock.preprocess import preprocess_of
from wallclock.recipe import FAST, Limits, ModelSpec, Recipe
from wallclock.stages.augment import Augment, Augmentation, draw
from wallclock.stages.pixels import PixelArray

#: Sources at most that are looked at before the first is loaded.
_SAMPLED = 100


@dataclass(frozen=True)
class Hook:
    """What a job adds to the loading of an image; called in the loader's workers.

    In other processes it has what it had when they were forked.

    `skip`: whether an image is to be read only, by its header and hash (`Extras.skipped`).
    `extract`: what to keep of an image beside its row (`Extras.extracted`), of its file's bytes,
    what they are, and its pixels, uint8 (h, w, 3) as decoded, valid until it returns. It raises
    ImageError where the image has failed.
    """

    skip: Callable[[ImageInfo], bool] | None = None
    extract: Callable[[bytes, ImageInfo, PixelArray], Any] | None = None


@dataclass(frozen=True)
class LoaderOptions:
    """How images are loaded.

    `size`: side of the square images, in pixels, if the recipe squashes. `recipe`: decoder,
    resizer, and `workers` threads, 0 for one a core. `limits`: above which an image is a failure.
    `seed`: of the crops and colours of `recipe.augment`, `augment`: their limits. `hashes`: whether
    the sha256 of each file is noted. `hook`: see `Hook`. `spare`: batches that the consumer may
    hold beside the latest (`ThreadLoader.take`). `output`: what the images are, where the recipe
    normalizes on the host.
    """

    size: int = 224
    recipe: Recipe = FAST
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    hashes: bool = False
    hook: Hook = Hook()
    augment: Augment = field(default_factory=Augment)
    spare: int = 0
    output: Output = field(default_factory=Output)


def open_loader(
    sources: Sequence[Source] | StreamedBatches,
    batches: Sequence[Sequence[int]] | StreamedBatches,
    options: LoaderOptions,
    processes: int = 1,
) -> ThreadLoader | ForkedLoader:
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
    recipe = options.recipe
    if "opencv" in (recipe.decoder, recipe.resizer) or recipe.augment == "cpu":
        _single_threaded_opencv(recipe)
    feed = SourceFeed(sources, options)
    output = options.output
    model = ModelSpec("sources", "none", input_px=options.size, mean=output.mean, std=output.std)
    rows = rows_of(recipe, model, options.limits, options.augment, output)

    def open_threads(batches: Any, workers: int, **shared: Any) -> ThreadLoader:
        shared = {"spare": options.spare, "dtype": rows.dtype, "row": rows.shape} | shared
        of_thread = replace(recipe, workers=workers)
        with _outside_inference_mode(recipe):
            return ThreadLoader(feed, of_thread, model, batches, rows.build, **shared)

    if processes == 1 or not isinstance(batches, Sequence):
        buffers = rows.buffers(worker_count(recipe), largest_batch(batches))
        return open_threads(batches, recipe.workers, buffers=buffers)
    shape = (recipe.batch_size, *rows.shape)
    threads = max(worker_count(recipe), processes)
    memory: dict[str, Any] = {"dtype": rows.dtype, "spare": options.spare}
    return ForkedLoader(open_threads, batches, shape, processes, threads, **memory)


class SourceFeed(Feed):
    """Sources, each inspected once it is read."""

    inspects = True

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
        self.extract = options.hook.extract
        self._inspector = Inspector(
            options.limits,
            options.recipe.decoder,
            draw=_draws(n, options) if _needs_draws(options) else None,
            skip=options.hook.skip,
            hashes=options.hashes,
            rotate=preprocess_of(options.recipe, options.size, sizes_differ=True).rotate,
        )

    def item_at(self, position: int) -> Source:
        """The source at a position."""
        return self._sources[position % self.n]

    def inspect(self, position: int, item: Source, data: bytes) -> tuple[ImageInfo, bool]:
        """See `Inspector`."""
        return self._inspector(position, item.id, data)


def _needs_draws(options: LoaderOptions) -> bool:
    return options.recipe.augment != "none" or options.augment.transform is not None


def _draws(n: int, options: LoaderOptions) -> Callable[[int, int, int], Augmentation]:
    def draw_at(width: int, height: int, position: int) -> Augmentation:
        epoch, index = divmod(position, n)
        return draw(width, height, options.seed, epoch, index, options.augment)

    return draw_at


def _outside_inference_mode(recipe: Recipe) -> AbstractContextManager[object]:
    """The mode belongs to the thread that opens; a worker could not write to buffers made in it."""
    if recipe.resizer != "torch":
        return nullcontext()
    import torch

    return torch.inference_mode(False)


def _single_threaded_opencv(recipe: Recipe) -> None:
    try:
        set_threads(recipe, uses_torch=False)
    except ImportError as error:
        needs = "augmentation, and a recipe with opencv, needs OpenCV"
        raise Unavailable(f"{needs}: {install_hint('augment')}") from error
