"""One interface over every loader: the three engines of this suite, and third-party loaders.

with open_loader(manifest, recipe, model, positions) as loader:
    for batch in loader:
        batch.ids, batch.images      # valid until the next batch is requested
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.corpora.manifest import Manifest
from harness.engines.loader import Loader, Threads
from harness.engines.pipeline import feed_of, loading_of
from harness.processes import set_threads
from harness.spec import Recipe
from wallclock.loader.batch import Batch
from wallclock.loader.prepare import BuildInPlace, in_place_stages
from wallclock.loader.threads import Buffers, worker_count
from wallclock.recipe import ModelSpec, Statistics
from wallclock.stages import normalize, transfer


def open_loader(
    manifest: Manifest,
    recipe: Recipe,
    model: ModelSpec,
    positions: Sequence[Sequence[int]],
    variant: str = "",
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
    # Imported here: a process whose loader needs no torch does not load it.
    if recipe.engine == "serial":
        from harness.engines.serial import SerialLoader

        return SerialLoader(manifest, recipe, model, positions)
    if recipe.engine == "dataloader":
        from harness.engines.dataloader import ProcessLoader

        return ProcessLoader(manifest, recipe, model, positions)
    if recipe.engine == "threads":
        return open_threads(manifest, recipe, model, positions)
    from harness.engines import third_party

    return third_party.open_loader(recipe, manifest, model, variant)


def open_threads(
    manifest: Manifest,
    recipe: Recipe,
    model: ModelSpec,
    positions: Sequence[Sequence[int]],
    build: BuildInPlace = in_place_stages,
) -> Threads:
    """The product's loader of threads over the manifest's valid images.

    `build` binds each thread's stages, by default as a job does.
    """
    set_threads(recipe, uses_torch=False)
    feed = feed_of(manifest, recipe, model)
    loading, buffers = loading_of(recipe, model), buffers_of(recipe, model)
    return Threads(feed, loading, worker_count(recipe), positions, build, buffers)


def buffers_of(recipe: Recipe, model: ModelSpec) -> Buffers:
    """Float32 (3, h, w) where the host normalizes, else uint8 (h, w, 3)."""
    px = loading_of(recipe, model).geometry.canvas
    if recipe.normalize_on == "host":
        return Buffers((3, *px), np.float32, recipe.pins)
    return Buffers((*px, 3), np.uint8, recipe.pins)


class OnDevice(Loader):
    """A loader whose batches are float32 (n, 3, h, w) on the device when they arrive.

    What a batch still lacks is done here, by the stages of a recipe: the copy, queued where its
    memory is pinned, and for uint8 the normalization. Open the loader first: a fork after CUDA has
    started would copy a broken context.
    """

    def __init__(self, loader: Loader, statistics: Statistics, device: str) -> None:
        self.engine = loader.engine
        self.workers = loader.workers
        self.version = loader.version
        self.settings = loader.settings
        self.prefetched = loader.prefetched
        self.burst = loader.burst
        self._loader = loader
        self._device = device
        self._h2d = transfer.make(device).h2d
        self._normalize = normalize.on_device(*statistics, device)

    def __next__(self) -> Batch:
        """The next batch, complete on the device."""
        import torch

        batch = next(self._loader)
        images = self._h2d(batch.images)
        if images.dtype == torch.uint8:
            images = self._normalize(images)
        if self._device == "cuda":
            # This batch's own work only: others may decode the next ones on the device.
            cuda: Any = torch.cuda
            done = cuda.Event(blocking=True)
            done.record()
            done.synchronize()
        return replace(batch, images=images)


def to_pixels(images: Any, statistics: Statistics) -> npt.NDArray[np.uint8]:
    """A batch as uint8 (n, h, w, 3): unchanged, or with the normalization undone."""
    array: npt.NDArray[Any] = np.asarray(images.cpu() if hasattr(images, "cpu") else images)
    if array.dtype != np.uint8:
        mean, std = (np.asarray(values, dtype=np.float32) for values in statistics)
        levels = (array.transpose(0, 2, 3, 1) * std + mean) * 255
        array = np.clip(np.rint(levels), 0, 255).astype(np.uint8)
    return array
