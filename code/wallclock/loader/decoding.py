"""The loader's decode and resize for one image, in a loop of the user's own.

DataLoader(ImageFolder("photos/", transform, loader=wallclock.loader_for(224)))
"""

import os
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wallclock.check import Inspector
from wallclock.errors import ImageError
from wallclock.fetch.sources import SourceReader
from wallclock.loader.items import as_source
from wallclock.loader.loading import loading_for
from wallclock.loader.prepare import InPlaceStages, in_place_stages
from wallclock.preprocess import Preprocess, Size
from wallclock.recipe import Limits

if TYPE_CHECKING:
    from PIL import Image

_of_thread = threading.local()


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
        ImageError: it cannot be read, is damaged or above the limits; the message names it.
        UserError: `size` or `preprocess` is not understood.
    """
    tools = _tools(tuple(size) if isinstance(size, list) else size, preprocess)
    source = as_source(image, 0)
    try:
        data = tools.stages.read(source)
        info = tools.inspector(0, source.id, data)
        pixels = np.empty((*tools.canvas, 3), np.uint8)
        tools.stages.fill(info, data, tools.stages.as_destination(pixels))
    except ImageError as error:
        error.image = source.id if isinstance(source.where, str) else type(image).__name__
        raise
    return pixels


def loader_for(
    size: int | tuple[int, int] | None = None, preprocess: str | Preprocess = "squash"
) -> "Callable[[str | os.PathLike[str]], Image.Image]":
    """A function from a path to an RGB image, for the `loader` of torchvision's `ImageFolder`.

    It can be pickled, so that worker processes take it, and raises OSError for an image that cannot
    be read. Arguments as those of `decode`.
    """
    _ = loading_for(size, preprocess).geometry.canvas  # raises here, not in a worker
    return partial(_load, size=size, preprocess=preprocess)


def _load(path: str | os.PathLike[str], **geometry: Any) -> "Image.Image":
    from PIL import Image

    try:
        return Image.fromarray(decode(path, **geometry))
    except ImageError as error:
        raise OSError(str(error)) from error


class _Tools(NamedTuple):
    """What one thread decodes with, for one size and geometry."""

    inspector: Inspector
    stages: InPlaceStages
    canvas: Size


def _tools(*geometry: Any) -> _Tools:
    """Those of this thread: a decoder's buffers are not shared."""
    make = getattr(_of_thread, "make", None)
    if make is None:
        make = _of_thread.make = lru_cache(maxsize=8)(_make_tools)
    tools: _Tools = make(os.getpid(), *geometry)
    return tools


@lru_cache(maxsize=1)
def _reader(_process: int) -> SourceReader:
    """One for all threads: it may have connections. A fork has none of its threads."""
    return SourceReader(Limits(), fetches_ahead=False)


def _make_tools(process: int, size: Any, preprocess: str | Preprocess) -> _Tools:
    loading = loading_for(size, preprocess)
    canvas, rotate = loading.geometry.canvas, loading.geometry.rotate
    inspector = Inspector(Limits(), loading.decoder, rotate=rotate)
    return _Tools(inspector, in_place_stages(loading, _reader(process)), canvas)
