"""An image of any size, resized, cropped, padded and turned upright: to a fixed canvas, or not."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.check import Image
from wallclock.errors import ImageError, image_errors
from wallclock.orientation import orient, oriented_size, stored_placement
from wallclock.preprocess import Placement, Preprocess
from wallclock.recipe import INTERPOLATIONS
from wallclock.stages import resize
from wallclock.stages.decode.decoder import denominator_for
from wallclock.stages.pixels import PixelArray

#: Pixels that a decode at reduced scale leaves along each side, at least, per pixel of the result.
#: A resize that keeps the aspect ratio shows more of what the scale loses than a squash: with 1.25
#: the worst of 60 photos had 39.5 dB with bicubic, with 2.0 the worst of 277 had 39.7 dB with
#: bilinear, with 1.6 38.3 dB with lanczos.
_LEAST_MARGINS = {"bilinear": 2.5, "bicubic": 1.5, "lanczos": 2.0}
#: Filters that take whole stored pixels: only the image in full, upright and resized as a whole,
#: has the pixels that Pillow has. A window of it had 33 dB, a decode at reduced scale 19 dB.
_WHOLE_PIXELS = ("nearest", "box")


def resizer_for(preprocess: Preprocess, resizer: str) -> str:
    """The resizer's name; Pillow's where it lacks the interpolation."""
    has_filter = preprocess.interpolation in INTERPOLATIONS[resizer]
    return resizer if has_filter else "pil"


class PlaceImage:
    """The resize stage of a recipe whose `preprocess` is more than `squash`.

    Args:
        preprocess: the geometry.
        resizer: `recipe.resizer`; Pillow takes over where it lacks the interpolation.

    Raises Unavailable: the resizer's library is not installed.
    """

    def __init__(self, preprocess: Preprocess, resizer: str) -> None:
        name = resizer_for(preprocess, resizer)
        self._preprocess, self._canvas = preprocess, preprocess.canvas
        self._resizer = resize.make(name, preprocess.interpolation, self._canvas)
        self._squashes = preprocess.crop is None
        self._turns_first = preprocess.interpolation in _WHOLE_PIXELS
        #: The name of the resizer, read back.
        self.name = self._resizer.name
        #: What resizes, and to which geometry, read back.
        self.labels = self._resizer.labels | {"preprocess": str(preprocess)}
        self._place = image_errors("resize", self.name, self._into)

    def as_destination(self, row: PixelArray) -> Any:
        """A row, uint8 (*canvas, c), as `resize_into` takes it."""
        return row, self._resizer.as_destination(row)

    def resize_into(self, image: Image, pixels: PixelArray, destination: Any) -> None:
        """Fill a row of the batch with an image as decoded, (h, w, c). Raises ImageError."""
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
            pixels, stored, orientation = _turn(pixels, stored, orientation)
        if self._squashes and orientation == 1:
            self._resizer.resize_into(direct, pixels, stored)
            return
        placement = self._preprocess.place(*oriented_size(*stored, orientation))
        resized = _resize_upright(self._resizer, pixels, placement, stored, orientation)
        if placement.window == self._canvas:
            row[...] = resized
            return
        row[...] = 0
        (top, left), (rows, columns) = placement.offset, placement.window
        row[top : top + rows, left : left + columns] = resized


def _turn(
    pixels: PixelArray, stored: tuple[int, int], orientation: int
) -> tuple[PixelArray, tuple[int, int], int]:
    """The image upright, and its size and orientation then."""
    upright = np.ascontiguousarray(orient(np.asarray(pixels), orientation))
    return upright, oriented_size(*stored, orientation), 1


def _resize_upright(
    resizer: resize.Resizer,
    pixels: PixelArray,
    placement: Placement,
    stored: tuple[int, int],
    orientation: int,
) -> PixelArray:
    """The placement's window, upright; it may be valid until the next call only."""
    if orientation == 1:
        return resizer.resize_window(pixels, placement, stored)
    # Resized as it is stored, where the exact extent is known; then the result is turned.
    window = stored_placement(placement, orientation)
    return orient(resizer.resize_window(pixels, window, stored), orientation)


class KeepShape:
    """The resize stage of a `preprocess` without a crop: every image has a size of its own.

    Args:
        preprocess: the geometry.
        resizer: `recipe.resizer`; Pillow takes over where it lacks the interpolation.
        most_pixels: an image that would be enlarged to more has failed.

    Raises Unavailable: the resizer's library is not installed.
    """

    def __init__(self, preprocess: Preprocess, resizer: str, most_pixels: int) -> None:
        name = resizer_for(preprocess, resizer)
        self._preprocess, self._most_pixels = preprocess, most_pixels
        self._resizer = resize.make(name, preprocess.interpolation, preprocess.size)
        self._turns_first = preprocess.interpolation in _WHOLE_PIXELS
        self._resizes = preprocess.resize != "none"
        #: The name of the resizer, read back.
        self.name = self._resizer.name if self._resizes else "none"
        self._resize_checked = image_errors("resize", self.name, self._resize)

    def __call__(self, image: Image, pixels: PixelArray) -> PixelArray:
        """Uint8 (h, w, c), valid until the next call. Raises ImageError."""
        orientation = image.orientation if self._preprocess.rotate else 1
        if not self._resizes:
            return orient(_with_channels(pixels), orientation)
        return self._resize_checked(image, pixels, orientation)

    def _resize(self, image: Image, pixels: PixelArray, orientation: int) -> PixelArray:
        stored = image.height, image.width
        if self._turns_first:
            pixels, stored, orientation = _turn(pixels, stored, orientation)
        placement = self._preprocess.place(*oriented_size(*stored, orientation))
        rows, columns = placement.resized
        if rows * columns > self._most_pixels:
            limit = f"over the limit of {self._most_pixels:,} pixels"
            raise ImageError("resize", f"it would become {columns} × {rows}, {limit}")
        return _resize_upright(self._resizer, pixels, placement, stored, orientation)


def _with_channels(pixels: Any) -> PixelArray:
    """Pillow's image, or an array, as (h, w, c)."""
    array = np.asarray(pixels)
    return array if array.ndim == 3 else array[..., None]


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
