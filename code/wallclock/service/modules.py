"""Modules of the service's own: pixels by the fast path, and vectors as `wallclock embed` makes."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from wallclock import checkpoint
from wallclock.constraints import Help, Range, build, check
from wallclock.fetch.sources import Source
from wallclock.infer.finite import not_finite, rows_not_finite
from wallclock.infer.network import open_announced, open_fastest
from wallclock.job.settings import (
    MOCK,
    Device,
    Dtype,
    Geometry,
    JobSettings,
    Normalize,
    Pool,
    Runtime,
    Weights,
)
from wallclock.loader.decoding import ImageDecoder
from wallclock.loader.loading import Loading
from wallclock.recipe import FAST, Limits
from wallclock.service.interface import Module, Request
from wallclock.service.logs import event

_Side = Annotated[int, Range(1, 4096)]
_MaxPixels = Annotated[int, Help("pixels above which an image is refused by its header")]


class Pixels(Module):
    """Images as uint8 (h, w, 3), checked, decoded and resized: a module adds `process`.

    Args:
        size: side of the square images in pixels, to which `squash` resizes.
        preprocess: squash, or another geometry: the text of a `Preprocess`, with its own sizes.
        max_pixels: above which an image is refused by its header.

    Raises UserError: a setting out of range, or a library that is not installed.
    """

    def __init__(
        self,
        size: Annotated[_Side, Help("side of the square images in pixels")] = 224,
        max_pixels: _MaxPixels = Limits.max_pixels,
        preprocess: Annotated[
            str, Help("squash, or as in shortest:256,crop:224,bicubic")
        ] = "squash",
    ) -> None:
        limits = build(Limits, {"max_pixels": max_pixels}, "")
        recipe = replace(FAST, preprocess=preprocess)
        loading = Loading.of(recipe, check(_Side, size, "size"))
        self._decode = ImageDecoder(loading, limits)

    def preprocess(self, image: bytes, request: Request) -> npt.NDArray[np.uint8]:
        """Uint8 (h, w, 3). Raises ImageError: damaged, over a limit, or no image."""
        return self._decode(Source(request.id, image))


class Embedding(Pixels):
    """Vectors, normalized and computed on the device.

    `model`: a hub id, a folder; or null: no network, every result is []. `batch`: the most images
    that `process` gets. The others: as of `wallclock embed`. Raises UserError.
    """

    def __init__(
        self,
        model: Annotated[
            str, Help("hub id (owner/name), a folder, or null: no network, results are []")
        ] = str(checkpoint.DEFAULT.hub_id),
        device: Device = "auto",
        runtime: Runtime = "auto",
        dtype: Dtype = "auto",
        batch: int = 0,
        max_pixels: _MaxPixels = Limits.max_pixels,
        weights: Weights = "pretrained",
        pool: Pool = "auto",
        preprocess: Geometry = "auto",
        normalize: Normalize = False,
    ) -> None:
        values = {
            "model": model,
            "weights": weights,
            "preprocess": preprocess,
            "pool": pool,
            "normalize": normalize,
            "device": device,
            "runtime": runtime,
            "dtype": dtype,
            "batch": batch,
        }
        job = build(JobSettings, values, "")
        recipe, network, notes = job.resolved(job.resolved_device())
        for note in notes:
            _note(note)
        super().__init__(network.input_px, max_pixels, recipe.preprocess)
        self._embedder = None
        if model != MOCK:
            if runtime == "auto":
                _, self._embedder = open_fastest(recipe, network, _note, earns=True)
            else:
                self._embedder = open_announced(recipe, network, _note)

    def process(self, batch: npt.NDArray[np.uint8]) -> Sequence[Any]:
        """Float32 vectors of the images (n, size, size, 3); an ImageError where not finite."""
        if self._embedder is None:
            return [[]] * len(batch)
        vectors = self._embedder.embed(batch)
        results: list[Any] = list(vectors)
        for row in rows_not_finite(vectors):
            results[row] = not_finite(self._embedder.labels["dtype"])
        return results


def _note(line: str) -> None:
    event(logging.WARNING, "model", note=line)
