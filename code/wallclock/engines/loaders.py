"""One interface over every loader: the three engines of this suite, and third-party loaders.

with open_loader(manifest, recipe, model, positions) as loader:
    for batch in loader:
        batch.ids, batch.images      # valid until the next batch is requested
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from wallclock.corpus.manifest import Manifest
from wallclock.engines.batch import Batch, Positions
from wallclock.spec import ENGINES, ModelSpec, Recipe, Statistics


class Loader(Protocol):
    """An iterator over batches, in order.

    `engine` names what runs; `version` its library and version, `settings` its
    configuration. `prefetched`: batches that may be complete before they are requested, which a
    warm-up drains. `burst`: batches that arrive together, because that many workers each make one.
    """

    engine: str
    workers: int
    version: str
    settings: str
    prefetched: int
    burst: int

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch: ...

    def ready(self) -> int:
        """About how many complete batches wait to be requested; 0 where that is unknown."""
        return 0

    def stats(self) -> dict[str, Any]:
        """Values for the record: buffers, and where each worker's time went; may be empty."""
        return {}


def open_loader(
    manifest: Manifest, recipe: Recipe, model: ModelSpec, positions: Positions, variant: str = ""
) -> AbstractContextManager[Loader]:
    """Start the loader that `recipe.engine` names over the manifest's valid images.

    Args:
        model: of which the input size, the mean and the standard deviation matter.
        positions: into `manifest.valid`, one list a batch; past the end they start over.
            Third-party loaders take the images in order, endlessly, in the recipe's batches.
        variant: of a third-party loader that has several.

    Raises:
        Unavailable: what it needs is not here.
        UserError: no such engine.
    """
    # Imported here: a process that decodes for OpenCV or Pillow need not load torch.
    if recipe.engine == "serial":
        from wallclock.engines.serial import SerialLoader

        return SerialLoader(manifest, recipe, model, positions)
    if recipe.engine == "dataloader":
        from wallclock.engines.dataloader import ProcessLoader

        return ProcessLoader(manifest, recipe, model, positions)
    if recipe.engine == "threads":
        from wallclock.engines.threads import ThreadLoader

        return ThreadLoader(manifest, recipe, model, positions)
    from wallclock.engines import third_party

    return third_party.open_loader(recipe, manifest, model, variant)


def prefetched_batches(recipe: Recipe) -> int:
    """Batches that a loader of this suite may have loaded before the clock starts."""
    if recipe.engine == "threads":
        from wallclock.engines.threads import ring_size

        return ring_size(recipe)
    if recipe.engine == "dataloader":
        return recipe.workers * recipe.prefetch + 1
    return 1


def burst_of(recipe: Recipe) -> int:
    """Batches of a loader of this suite that arrive together."""
    return max(recipe.workers, 1) if recipe.engine in ENGINES[1:] else 1


def to_pixels(images: Any, statistics: Statistics) -> npt.NDArray[np.uint8]:
    """A batch as uint8 (n, h, w, 3): unchanged, or with the normalization undone."""
    array: npt.NDArray[Any] = np.asarray(images.cpu() if hasattr(images, "cpu") else images)
    if array.dtype == np.uint8:
        pixels: npt.NDArray[np.uint8] = array
        return pixels
    mean, std = (np.asarray(values, dtype=np.float32) for values in statistics)
    levels = (array.transpose(0, 2, 3, 1) * std + mean) * 255
    rounded: npt.NDArray[np.uint8] = np.clip(np.rint(levels), 0, 255).astype(np.uint8)
    return rounded


class CyclicPositions(Sequence[list[int]]):
    """Batches of positions over `n_items` images, again and again, computed when indexed.

    Args:
        n: images in all.
    """

    def __init__(self, n_items: int, batch_size: int, n: int) -> None:
        self._n_items, self._size, self._n = n_items, batch_size, n

    def __len__(self) -> int:
        return -(-self._n // self._size)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        first = index * self._size
        last = min(first + self._size, self._n)
        return [position % self._n_items for position in range(first, last)]
