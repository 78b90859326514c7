"""The threads loader over images that were not listed or validated before."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from wallclock.corpus.sources import Inspected, Inspector, Source, SourceReader
from wallclock.engines.batch import Positions
from wallclock.engines.pipeline import Feed
from wallclock.engines.processes import ForkedLoader
from wallclock.engines.threads import ThreadLoader, worker_count
from wallclock.errors import Unavailable
from wallclock.spec import Limits, ModelSpec, Recipe
from wallclock.stages.augment import Augmentation, draw
from wallclock.stages.pixels import Pixels
from wallclock.thread_counts import set_threads

#: As conf/recipe/fast.yaml has it.
FAST = Recipe(
    "fast",
    "simplejpeg",
    "torch",
    engine="threads",
    batch_size=64,
    dtype="fp16",
    dct_scale="auto",
    normalize_on="device",
)
#: Sources at most that are looked at before the first is loaded.
_SAMPLED = 100


def open_sources(
    sources: Sequence[Source],
    batches: Sequence[Sequence[int]],
    *,
    size: int = 224,
    recipe: Recipe = FAST,
    workers: int = 0,
    limits: Limits | None = None,
    known: Callable[[bytes], bool] | None = None,
    also: Callable[[bytes, Inspected, Pixels], bytes | None] | None = None,
    seed: int = 0,
    hashes: bool = False,
) -> ThreadLoader:
    """Read, inspect, decode and resize these images in threads.

    Args:
        sources: what the positions name; may compute its items, which any thread asks for.
        batches: positions, in order; past the last source they start over, in the next epoch.
            May compute its items. With an attribute `batch_size`, the most images of one, it is
            indexed once for each batch; without, there is a pass over it first.
        size: side of the square images, in pixels.
        workers: threads; 0 is one for each core.
        limits: above which an image is a failure; by default as the suite's.
        known: whether an image of this sha256 (32 bytes) is to be read only: `Batch.known`.
        also: makes something of the file's bytes, the `Inspected` and its pixels, uint8 (h, w, 3)
            as decoded, valid until it returns: `Batch.made`. In a worker, as `known` is.
        seed: of the crops and colours of `recipe.augment`.
        hashes: whether the sha256 of each file is noted; it is with `known`.

    Returns:
        A context manager that is an iterator of `Batch`: images uint8 (n, size, size, 3), valid
        until the next batch is requested. Each row's `inspected` has its length and size, and with
        `hashes` its sha256.

    Raises:
        Unavailable: the recipe's decoder or resizer is not installed.
        UserError: while iterating: an image needs a library that is not installed.
    """
    return _opener(sources, size, recipe, limits, known, also, seed, hashes)(batches, workers)


def fork_sources(
    sources: Sequence[Source],
    batches: Sequence[Sequence[int]],
    processes: int,
    *,
    size: int = 224,
    recipe: Recipe = FAST,
    workers: int = 0,
    limits: Limits | None = None,
    known: Callable[[bytes], bool] | None = None,
    also: Callable[[bytes, Inspected, Pixels], bytes | None] | None = None,
    seed: int = 0,
    hashes: bool = False,
) -> ForkedLoader:
    """As `open_sources`, with the threads divided among processes, which are forked on entry.

    `known` and `also` are called there, with what they had at that moment. A batch has at most
    `recipe.batch_size` images.
    """
    open_one = _opener(sources, size, recipe, limits, known, also, seed, hashes)
    shape = recipe.batch_size, size, size, 3
    threads = max(worker_count(replace(recipe, workers=workers)), processes)
    return ForkedLoader(open_one, batches, shape, processes, threads)


def _opener(
    sources: Sequence[Source],
    size: int,
    recipe: Recipe,
    limits: Limits | None,
    known: Callable[[bytes], bool] | None,
    also: Callable[[bytes, Inspected, Pixels], bytes | None] | None,
    seed: int,
    hashes: bool,
) -> Callable[..., ThreadLoader]:
    """Opens a loader of batches with so many workers; with what processes share, if they do."""
    if "opencv" in (recipe.decoder, recipe.resizer) or recipe.augment == "cpu":
        _single_threaded_opencv(recipe)
    limits, n = limits or Limits(), len(sources)

    def drawn(width: int, height: int, at: int) -> Augmentation:
        return draw(width, height, seed, *divmod(at, n))

    augments = recipe.augment != "none"
    inspect = Inspector(limits, recipe.decoder, known, drawn if augments else None, hashes)
    # Announcing images costs 5 % of a thumbnail's time, and brings nothing without a network.
    remote = any(sources[at].remote for at in range(0, n, -(-n // _SAMPLED) or 1))
    reader = SourceReader(limits, fetches_ahead=remote)
    feed = Feed(reader, n, lambda at: sources[at % n], inspect, also)
    model = ModelSpec("sources", "none", input_px=size)

    def open_one(own: Positions, workers: int, **shared: Any) -> ThreadLoader:
        with _outside_inference_mode(recipe):
            return ThreadLoader(feed, replace(recipe, workers=workers), model, own, **shared)

    return open_one


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
        raise Unavailable(f"{needs}: pip install 'wallclock[augment]'") from error
