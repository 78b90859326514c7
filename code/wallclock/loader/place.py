"""An image of any size to a fixed canvas: resized, cropped, padded and turned upright."""

from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.check import Image
from wallclock.errors import image_errors
from wallclock.orientation import orient, oriented_size, stored_placement
from wallclock.preprocess import Preprocess
from wallclock.recipe import INTERPOLATIONS
from wallclock.stages import resize
from wallclock.stages.decode.decoder import denominator_for
from wallclock.stages.pixels import PixelArray

#: A sharp filter, and a resize that keeps the aspect ratio, show more of what a scaled decode
#: loses: with 1.25 the worst of 60 photos had 39.5 dB (`benchmarks.preprocess`).
LEAST_MARGIN = 1.5


class PlaceImage:
    """The resize stage of a recipe whose `preprocess` is more than `squash`.

    Args:
        preprocess: the geometry.
        resizer: `recipe.resizer`; Pillow takes over where it lacks the interpolation.

    Raises Unavailable: the resizer's library is not installed.
    """

    def __init__(self, preprocess: Preprocess, resizer: str) -> None:
        has_filter = preprocess.interpolation in INTERPOLATIONS[resizer]
        name = resizer if has_filter else "pil"
        self._preprocess, self._canvas = preprocess, preprocess.canvas
        self._resizer = resize.make(name, preprocess.interpolation, self._canvas)
        self._squashes = preprocess.crop is None
        #: The name of the resizer, read back.
        self.name = self._resizer.name
        self._place = image_errors("resize", self.name, self._into)

    def as_destination(self, row: PixelArray) -> Any:
        """A row, uint8 (*canvas, 3), as `resize_into` takes it."""
        return row, self._resizer.as_destination(row)

    def resize_into(self, image: Image, pixels: PixelArray, destination: Any) -> None:
        """Fill a row of the batch with an image as decoded, (h, w, 3). Raises ImageError."""
        self._place(image, pixels, destination)

    def resize(self, image: Image, pixels: PixelArray) -> npt.NDArray[np.uint8]:
        """The same into a new array, uint8 (*canvas, 3)."""
        row = np.empty((*self._canvas, 3), np.uint8)
        self._place(image, pixels, self.as_destination(row))
        return row

    def _into(self, image: Image, pixels: PixelArray, destination: Any) -> None:
        row, direct = destination
        stored = image.height, image.width
        orientation = image.orientation if self._preprocess.rotate else 1
        if self._squashes and orientation == 1:
            self._resizer.resize_into(direct, pixels, stored)
            return
        upright = oriented_size(*stored, orientation)
        placement = self._preprocess.place(*upright)
        window = placement
        if orientation != 1:
            # Resized as it is stored, where the exact extent is known; then the result is turned.
            window = stored_placement(placement, orientation)
        resized = orient(self._resizer.resize_window(pixels, window, stored), orientation)
        if placement.window == self._canvas:
            row[...] = resized
            return
        row[...] = 0
        (top, left), (rows, columns) = placement.offset, placement.window
        row[top : top + rows, left : left + columns] = resized


class ChooseScale:
    """The DCT scale of an image: the smallest that leaves enough pixels for its geometry."""

    def __init__(self, preprocess: Preprocess, margin: float) -> None:
        self._preprocess, self._margin = preprocess, max(margin, LEAST_MARGIN)

    def __call__(self, image: Image) -> int:
        """8, 4, 2 or 1."""
        orientation = image.orientation if self._preprocess.rotate else 1
        upright = oriented_size(image.height, image.width, orientation)
        rows, columns = self._preprocess.resized(*upright)
        margin = self._margin
        return denominator_for(*upright, margin * rows, margin * columns)
