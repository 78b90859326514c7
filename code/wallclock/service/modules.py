"""Modules of the service's own: pixels by the fast path, and vectors as `wallclock embed` makes."""

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from wallclock import checkpoint
from wallclock.constraints import OneOf, Range, build, check
from wallclock.corpus.manifest import LARGE_PIXELS
from wallclock.corpus.sources import Inspector, Source, SourceReader
from wallclock.engines.pipeline import InPlaceStages, in_place_stages, network_stages
from wallclock.engines.unlisted import FAST
from wallclock.errors import Unavailable, UserError
from wallclock.service.module import Module, Request
from wallclock.spec import PROGRESSIVE, Limits, ModelSpec

_Side = Annotated[int, Range(1, 4096)]
_Progressive = Annotated[str, OneOf(PROGRESSIVE)]
_unlimited = nullcontext()


class Pixels(Module):
    """Images as uint8 (size, size, 3): checked, decoded to the smallest scale that serves, resized.

    A module that inherits from it has `process` to write, and no other decoder to make safe.

    Args:
        size: side of the square images in pixels; the aspect ratio is not kept.
        progressive: how much of a progressive JPEG is decoded: early, exact or full.
        max_pixels: above which an image is refused by its header.

    Raises UserError: a setting out of range, or a library that is not installed.
    """

    def __init__(
        self, size: int = 224, progressive: str = "early", max_pixels: int = Limits.max_pixels
    ) -> None:
        limits = build(Limits, {"max_pixels": max_pixels}, "")
        self._size = check(_Side, size, "size")
        progressive = check(_Progressive, progressive, "progressive")
        self._recipe = replace(FAST, progressive=progressive)
        self._reader = SourceReader(limits, fetches_ahead=False)
        self._inspect = Inspector(limits, FAST.decoder)
        self._of_thread, self._one_large = threading.local(), threading.Lock()
        try:
            self._stages()  # so that a library that is missing fails here, not at the first image
        except Unavailable as error:
            raise UserError(str(error)) from error

    def preprocess(self, image: bytes, request: Request) -> npt.NDArray[np.uint8]:
        """Uint8 (size, size, 3). Raises ImageError: damaged, over a limit, or no image."""
        stages = self._stages()
        item, _ = self._inspect(0, Source(request.id, image), image)
        resized = np.empty((self._size, self._size, 3), np.uint8)
        # Of pictures this large, one at a time: decoded, they take much memory.
        with self._one_large if item.pixels > LARGE_PIXELS else _unlimited:
            pixels = stages.decode(item, image)
            stages.resize_into(item, pixels, stages.as_destination(resized))
        return resized

    def _stages(self) -> InPlaceStages:
        """This thread's own: they reuse buffers."""
        if not hasattr(self._of_thread, "stages"):
            square = ModelSpec("pixels", "none", input_px=self._size)
            self._of_thread.stages = in_place_stages(self._recipe, square, self._reader)
        stages: InPlaceStages = self._of_thread.stages
        return stages


class Embedding(Pixels):
    """Vectors, normalized and computed on the device.

    Args:
        model: a hub id, a folder; or null: no network, every result is [].
        device: auto, cpu or cuda.
        dtype: auto, or one that PyTorch's network may have (conf/recipe).
        batch: the most images that `process` gets.
        progressive: as of `Pixels`; so is `max_pixels`.

    Raises UserError: a model or device that is not here, or as `Pixels` does.
    """

    def __init__(
        self,
        model: str = str(checkpoint.DEFAULT.hub_id),
        device: str = "auto",
        dtype: str = "auto",
        batch: int = 0,
        progressive: str = "early",
        max_pixels: int = Limits.max_pixels,
    ) -> None:
        # Here, so that `Pixels` does without what a job needs.
        try:
            from wallclock.job.settings import MOCK, JobSettings
        except ModuleNotFoundError as error:
            fix = "pip install 'wallclock[embed]'"
            raise UserError(f"Embedding needs {error.name}, which is not here: {fix}") from error
        given = {"model": model, "device": device, "dtype": dtype, "progressive": progressive}
        job = build(JobSettings, {**given, "batch": batch}, "")
        recipe = job.resolved_recipe(job.resolved_device())
        network = job.resolved_model()
        super().__init__(network.input_px, progressive, max_pixels)
        self._network = None
        if model != MOCK:
            try:
                # The folder is for exported graphs; the recipe runs PyTorch, which has none.
                self._network = network_stages(recipe, network, Path())
            except Unavailable as error:
                raise UserError(str(error)) from error

    def process(self, batch: npt.NDArray[np.uint8]) -> Sequence[Any]:
        """Float32 vectors of the images (n, size, size, 3)."""
        network = self._network
        if network is None:
            return [[]] * len(batch)
        return list(network.d2h(network.forward(network.h2d(batch))))
