"""The service's own module: images to vectors, as `wallclock embed` makes them."""

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.constraints import build
from wallclock.corpus.manifest import LARGE_PIXELS
from wallclock.corpus.sources import Inspector, Source, SourceReader
from wallclock.engines.pipeline import InPlaceStages, in_place_stages, network_stages
from wallclock.errors import Unavailable, UserError
from wallclock.job.settings import MOCK, JobSettings
from wallclock.service.module import Module, Request
from wallclock.spec import Limits

_unlimited = nullcontext()


class Embedding(Module):
    """Decoded to the smallest scale that serves, resized, normalized on the device, embedded.

    Args:
        model: a hub id, a folder; or null: decoded and resized only, every result is [].
        device: auto, cpu or cuda.
        dtype: auto, or of the network as in conf/recipe.
        progressive: how much of a progressive JPEG is decoded, `early` or `full`.
        batch: the most images that `process` gets.
        max_pixels: above which an image is refused by its header.

    Raises UserError: a model or device that is not here, or a setting out of range.
    """

    def __init__(
        self,
        model: str = JobSettings.model,
        device: str = "auto",
        dtype: str = "auto",
        progressive: str = JobSettings.progressive,
        batch: int = 0,
        max_pixels: int = Limits.max_pixels,
    ) -> None:
        given = {"model": model, "device": device, "dtype": dtype, "progressive": progressive}
        job = build(JobSettings, {**given, "batch": batch}, "")
        limits = build(Limits, {"max_pixels": max_pixels}, "")
        self._recipe, self._model = job.resolved_recipe(), job.resolved_model()
        self._reader = SourceReader(limits, fetches_ahead=False)
        self._inspect = Inspector(limits, self._recipe.decoder)
        self._of_thread, self._one_large = threading.local(), threading.Lock()
        try:
            # Without a library that it needs, it fails here and not at the first image.
            self._stages()
            self._network = None
            if model != MOCK:
                # The folder is for exported graphs; the recipe runs PyTorch, which has none.
                self._network = network_stages(self._recipe, self._model, Path())
        except Unavailable as error:
            raise UserError(str(error)) from error

    def preprocess(self, image: bytes, request: Request) -> npt.NDArray[np.uint8]:
        """Uint8 (px, px, 3). Raises ImageError: damaged, over a limit, or no image."""
        stages = self._stages()
        item, _ = self._inspect(0, Source(request.id, image), image)
        resized = np.empty((self._model.input_px, self._model.input_px, 3), np.uint8)
        # Of pictures this large, one at a time: decoded, they take much memory.
        with self._one_large if item.pixels > LARGE_PIXELS else _unlimited:
            pixels = stages.decode(item, image)
            stages.resize_into(item, pixels, stages.as_destination(resized))
        return resized

    def process(self, batch: npt.NDArray[np.uint8]) -> Sequence[Any]:
        """Float32 vectors of the images (n, px, px, 3)."""
        network = self._network
        if network is None:
            return [[]] * len(batch)
        return list(network.d2h(network.forward(network.h2d(batch))))

    def _stages(self) -> InPlaceStages:
        """This thread's own: they reuse buffers."""
        if not hasattr(self._of_thread, "stages"):
            self._of_thread.stages = in_place_stages(self._recipe, self._model, self._reader)
        stages: InPlaceStages = self._of_thread.stages
        return stages
