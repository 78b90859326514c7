"""The threads loader for images that nobody has listed before, in your own loop."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from wallclock.corpus.sources import Inspected, Inspector, Source, SourceReader
from wallclock.engines.pipeline import Feed
from wallclock.engines.threads import ThreadLoader
from wallclock.spec import Limits, ModelSpec, Recipe
from wallclock.stages import augment
from wallclock.stages.augment import Augmentation
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
) -> ThreadLoader:
    """Read, inspect, decode and resize these images in threads.

    Args:
        sources: what the positions name; may compute its items, which any thread asks for.
        batches: positions, in order; past the last source they start over, in the next epoch.
            May compute its items; indexed once for each batch, after one pass for their lengths.
        size: side of the square images, in pixels.
        workers: threads; 0 is one for each core.
        limits: above which an image is a failure; by default as the suite's.
        known: whether an image of this sha256 (32 bytes) is to be read only: `Batch.known`.
        also: makes something of the file's bytes, the `Inspected` and its pixels, uint8 (h, w, 3)
            as decoded, valid until it returns: `Batch.made`. In a worker, as `known` is.
        seed: of the crops and colours of `recipe.augment`.

    Returns:
        A context manager that is an iterator of `Batch`: images uint8 (n, size, size, 3), valid
        until the next batch is requested. Each row's `inspected` has its sha256, length and size.

    Raises:
        Unavailable: the recipe's decoder or resizer is not installed.
        UserError: while iterating: an image needs a library that is not installed.
    """
    recipe = replace(recipe, workers=workers)
    if "opencv" in (recipe.decoder, recipe.resizer) or recipe.augment == "cpu":
        set_threads(recipe, uses_torch=False)
    limits, n = limits or Limits(), len(sources)

    def draw(width: int, height: int, at: int) -> Augmentation:
        return augment.draw(width, height, seed, *divmod(at, n))

    inspect = Inspector(limits, recipe.decoder, known, draw if recipe.augment != "none" else None)
    feed = Feed(SourceReader(limits), n, lambda at: sources[at % n], inspect, also)
    return ThreadLoader(feed, recipe, ModelSpec("sources", "none", input_px=size), batches)
