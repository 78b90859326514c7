"""A module of the service without any network: the average colour of each image.

wallclock serve QUEUE_URL module=examples.service_plain:AverageColour

It needs Pillow and numpy. `grid` is a setting, and so `grid=4` may follow on the command line.
"""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from wallclock.errors import ImageError, image_errors
from wallclock.service import Module, Request

_MAX_PIXELS = 50_000_000


class AverageColour(Module):
    """The colours of a grid's cells, as `[[red, green, blue], …]` row by row, 0 to 255."""

    def __init__(self, grid: int = 1) -> None:
        self._grid = grid
        # What Pillow raises for a damaged file is then that image's failure, in one line.
        self._read = image_errors("decode", "Pillow", self._open)

    def preprocess(self, image: bytes, request: Request) -> np.ndarray:
        """Uint8 (grid, grid, 3). In several threads at once: Pillow releases Python's lock."""
        return self._read(image)

    def process(self, batch: np.ndarray) -> Sequence[Any]:
        """Lists of colours. A model would run here, on the whole batch."""
        return list(batch.reshape(len(batch), -1, 3))

    def _open(self, image: bytes) -> np.ndarray:
        with Image.open(io.BytesIO(image), formats=["JPEG", "PNG", "WEBP"]) as picture:
            # The header's word, before any pixel is decoded: the file comes from anywhere.
            if picture.width * picture.height > _MAX_PIXELS:
                raise ImageError("decode", f"{picture.width}x{picture.height} pixels")
            # A JPEG is decoded no larger than this needs.
            picture.draft("RGB", (8 * self._grid, 8 * self._grid))
            sides = (self._grid, self._grid)
            return np.asarray(picture.convert("RGB").resize(sides, Image.Resampling.BOX))
