"""The finish line on a machine with a GPU: a normalized batch in the device's memory."""

from dataclasses import replace
from typing import Any

from wallclock.loader import Batch, Loader
from wallclock.recipe import Statistics
from wallclock.stages import normalize, transfer


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
