"""The loader's decode and resize for one image, in a loop of the user's own.

DataLoader(ImageFolder("photos/", transform, loader=wallclock.loader_for(224)))
"""

import os
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wallclock.check import Inspector
from wallclock.errors import ImageError
from wallclock.fetch.sources import Source, SourceReader
from wallclock.loader.items import as_source
from wallclock.loader.loading import Loading, loading_for
from wallclock.loader.prepare import InPlaceStages, in_place_stages
from wallclock.preprocess import Preprocess
from wallclock.recipe import Limits

if TYPE_CHECKING:
    from PIL import Image


def decode(
    image: Any, size: int | tuple[int, int] | None = None, preprocess: str | Preprocess = "squash"
) -> npt.NDArray[np.uint8]:
    """Read, check, decode and resize one image as `open_images` does.

    Args:
        image: a path, a URL, bytes, a binary file, a Pillow image or an array.
        size: see `open_images`; likewise `preprocess`.

    Returns:
        A new array, uint8 (height, width, 3).

    Raises:
        ImageError: it cannot be read, is damaged or over the limits; the message names it.
        UserError: `size` or `preprocess` is not understood.
    """
    decoder = _decoder(os.getpid(), tuple(size) if isinstance(size, list) else size, preprocess)
    source = as_source(image, 0)
    try:
        return decoder(source)
    except ImageError as error:
        error.image = source.id if isinstance(source.where, str) else type(image).__name__
        raise


def loader_for(
    size: int | tuple[int, int] | None = None, preprocess: str | Preprocess = "squash"
) -> "Callable[[str | os.PathLike[str]], Image.Image]":
    """A function from a path to an RGB Pillow image, for `ImageFolder(loader=…)` of torchvision.

    It can be pickled, takes the arguments of `decode`, and raises OSError for an unreadable image.
    """
    _ = loading_for(size, preprocess).geometry.canvas  # raises here, not in a worker
    return partial(_load, size=size, preprocess=preprocess)


def _load(path: str | os.PathLike[str], **geometry: Any) -> "Image.Image":
    from PIL import Image

    try:
        return Image.fromarray(decode(path, **geometry))
    except ImageError as error:
        raise OSError(str(error)) from error


class ImageDecoder:
    """Reads, checks, decodes and resizes one image at a time; threads may share it.

    Raises as `in_place_stages`, and for images that differ in size.
    """

    def __init__(self, loading: Loading, limits: Limits) -> None:
        self._loading = loading
        self._reader = SourceReader(limits, fetches_ahead=False)
        self._shape = *loading.geometry.canvas, 3
        self._inspect = Inspector(limits, loading.decoder, rotate=loading.geometry.rotate)
        self._of_thread = threading.local()
        self._stages()  # so that a library that is missing fails here, not at the first image

    def __call__(self, source: Source) -> npt.NDArray[np.uint8]:
        """A new array, uint8 (height, width, 3). Raises ImageError."""
        stages = self._stages()
        data = stages.read(source)
        info = self._inspect(0, source.id, data)
        pixels = np.empty(self._shape, np.uint8)
        stages.fill(info, data, stages.as_destination(pixels))
        return pixels

    def _stages(self) -> InPlaceStages:
        """This thread's own: they reuse buffers."""
        if not hasattr(self._of_thread, "stages"):
            self._of_thread.stages = in_place_stages(self._loading, self._reader)
        stages: InPlaceStages = self._of_thread.stages
        return stages


@lru_cache(maxsize=8)
def _decoder(_process: int, size: Any, preprocess: str | Preprocess) -> ImageDecoder:
    # One for a process: it may have connections, and a fork has none of its threads.
    return ImageDecoder(loading_for(size, preprocess), Limits())
