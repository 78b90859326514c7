"""An image of any size to a fixed canvas: resized, cropped, padded and turned upright."""

import math
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

#: Pixels that a decode at reduced scale leaves along each side, at least, per pixel of the result.
#: A resize that keeps the aspect ratio shows more of what the scale loses than a squash: with 1.25
#: the worst of 60 photos had 39.5 dB with bicubic, with 2.0 the worst of 277 had 39.7 dB with
#: bilinear, with 1.6 38.3 dB with lanczos (`benchmarks.preprocess`).
_LEAST_MARGINS = {"bilinear": 2.5, "bicubic": 1.5, "lanczos": 2.0}
#: Filters that take whole stored pixels: only the image in full, upright and resized as a whole,
#: has the pixels that Pillow has. A window of it had 33 dB, a decode at reduced scale 19 dB.
_WHOLE_PIXELS = ("nearest", "box")


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
        self._turns_first = preprocess.interpolation in _WHOLE_PIXELS
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
        if self._turns_first and orientation != 1:
            pixels = np.ascontiguousarray(orient(np.asarray(pixels), orientation))
            stored, orientation = oriented_size(*stored, orientation), 1
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
        # Without a margin of its own, a filter needs the image in full.
        least = _LEAST_MARGINS.get(preprocess.interpolation, math.inf)
        self._preprocess, self._margin = preprocess, max(margin, least)

    def __call__(self, image: Image) -> int:
        """8, 4, 2 or 1."""
        orientation = image.orientation if self._preprocess.rotate else 1
        upright = oriented_size(image.height, image.width, orientation)
        rows, columns = self._preprocess.resized(*upright)
        margin = self._margin
        return denominator_for(*upright, margin * rows, margin * columns)
