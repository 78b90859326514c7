"""The resize stage: cropped, padded and turned upright, to a fixed canvas or not; into a row."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from wallclock import native
from wallclock.check import Image
from wallclock.errors import ImageError, Unavailable, image_errors
from wallclock.loader.loading import Loading
from wallclock.orientation import UPRIGHT, orient, oriented_size, stored_placement
from wallclock.preprocess import Placement, Preprocess, Size
from wallclock.recipe import INTERPOLATIONS
from wallclock.stages import augment, decode, normalize, resize
from wallclock.stages.pixels import PixelArray, copied

#: Normalized float32 (3, h, w), or uint8 (h, w, 3) where the device normalizes; or n of them.
Arrays: TypeAlias = npt.NDArray[Any]
#: Writes an image's pixels, uint8 (h, w, c), into its row.
Store: TypeAlias = Callable[[Image, PixelArray, Arrays], None]
#: Resizes a decoded image into a destination, which is made of a row.
ResizeInto: TypeAlias = Callable[[Image, PixelArray, Any], None]


class _Upright:
    """A resizer for one geometry and each image's orientation; Pillow where it lacks a filter."""

    def __init__(self, preprocess: Preprocess, resizer: str, size: Size) -> None:
        has_filter = preprocess.interpolation in INTERPOLATIONS[resizer]
        name = resizer if has_filter else "pil"
        self._preprocess = preprocess
        self._resizer = resize.make(name, preprocess.interpolation, size)
        #: The name of the resizer, read back.
        self.name: str = self._resizer.name

    def _orientation(self, image: Image) -> int:
        return image.orientation if self._preprocess.rotate else UPRIGHT

    def _placement(self, image: Image) -> Placement:
        size = oriented_size(image.height, image.width, self._orientation(image))
        return self._preprocess.place(*size)

    def _window(self, image: Image, pixels: PixelArray) -> PixelArray:
        """What is used of the image, as stored; it may be valid until the next call only."""
        # Resized as it is stored, where the exact extent is known; then the result is turned.
        stored = stored_placement(self._placement(image), self._orientation(image))
        return self._resizer.resize_window(pixels, stored, (image.height, image.width))


class PlaceImage(_Upright):
    """The resize stage of images of one size; `crops`: an image may be cut before it."""

    def __init__(self, preprocess: Preprocess, resizer: str, *, crops: bool = False) -> None:
        self._canvas, self._crops = preprocess.canvas, crops
        super().__init__(preprocess, resizer, self._canvas)
        self._squashes = preprocess.crop is None
        #: What resizes, read back.
        self.labels: dict[str, str] = self._resizer.labels
        #: Fills a row of the batch with an image as decoded, (h, w, c). Raises ImageError.
        self.resize_into: ResizeInto = image_errors("resize", self.name, self._into)

    def as_destination(self, row: PixelArray) -> Any:
        """A row, uint8 (*canvas, c), as `resize_into` takes it."""
        return row, self._resizer.as_destination(row)

    def _into(self, image: Image, pixels: PixelArray, destination: Any) -> None:
        row, direct = destination
        if not self._squashes or self._orientation(image) != UPRIGHT:
            row[...] = self.lay(image, self._window(image, pixels))
            return
        drawn = image.augmentation if self._crops else None
        # A crop has no size in the file that would bound it.
        full = (image.height, image.width) if drawn is None or drawn.is_whole else None
        self._resizer.resize_into(direct, pixels, full)

    def lay(self, image: Image, resized: PixelArray) -> PixelArray:
        """An image's window as stored, (h, w, c), upright and on black: uint8 (*canvas, c)."""
        upright = orient(resized, self._orientation(image))
        if upright.shape[:2] == self._canvas:
            return upright
        laid = np.zeros((*self._canvas, upright.shape[2]), np.uint8)
        _, _, (rows, columns), (top, left) = self._placement(image)
        laid[top : top + rows, left : left + columns] = upright
        return laid


class OwnShapes(_Upright):
    """Writes images of sizes of their own, `most_pixels` at most, into rows of one object each.

    `transform`: what writes into a row; None: it gets a new array, uint8 (h, w, c).
    """

    def __init__(self, loading: Loading, transform: Store | None, most_pixels: int) -> None:
        super().__init__(loading.geometry, _resizer_of(loading), loading.geometry.size)
        self._most_pixels = most_pixels
        self._resizes = loading.geometry.resize != "none"
        name = self.name if self._resizes else "none"
        self.labels: dict[str, str] = {"resizer": name, "preprocess": loading.name}
        self.as_destination: Callable[[Any], Any] = unchanged
        self._resize_checked = image_errors("resize", name, self._resize)
        self._store = transform or _store_array

    def write(self, image: Image, pixels: PixelArray, row: Arrays) -> None:
        """Write an image, as decoded. Raises ImageError."""
        if self._resizes:
            pixels = self._resize_checked(image, pixels)
        array = np.asarray(pixels)  # Pillow's image may have no axis of channels
        array = array if array.ndim == 3 else array[..., None]
        self._store(image, orient(array, self._orientation(image)), row)

    def _resize(self, image: Image, pixels: PixelArray) -> PixelArray:
        rows, columns = self._placement(image).resized
        if rows * columns > self._most_pixels:
            limit = f"over the limit of {self._most_pixels:,} pixels"
            raise ImageError("resize", f"it would become {columns} × {rows}, {limit}")
        return self._window(image, pixels)


def _store_array(image: Image, pixels: PixelArray, row: Arrays) -> None:
    # The decoder's buffer is used again, and Pillow's memory or the user's is not ours.
    row[0] = copied(pixels)


def _resizer_of(loading: Loading) -> str:
    """What resizes: of RGBA Pillow, which weights colours by their alpha."""
    if loading.mode != "RGB" and loading.resizer == "opencv":
        fix = "set resizer=torch or pil"
        raise Unavailable(f"resizer=opencv is for RGB, not for {loading.mode}; {fix}")
    return "pil" if loading.mode == "RGBA" else loading.resizer


class RowWriter:
    """Writes decoded images into rows of a batch: crops, resizes, flips and stores them.

    `shape`: of a row as uint8 (h, w, c). `crops`: whether what was drawn for an image is applied.
    `stores`: whether there is more to do with each than to resize and normalize it.
    `as_destination`: a row as `write` takes it. `write`: an image and its pixels into a
    destination; raises ImageError. `labels`: what resizes, and to which geometry.
    """

    def __init__(self, loading: Loading, transform: Store | None) -> None:
        self.crops: bool = loading.crops
        self.shape: tuple[int, int, int] = (*loading.geometry.canvas, decode.MODES[loading.mode])
        stage = PlaceImage(loading.geometry, _resizer_of(loading), crops=self.crops)
        self.labels: dict[str, str] = stage.labels | {"preprocess": loading.name}
        self.as_destination: Callable[[Any], Any] = stage.as_destination
        self.write: ResizeInto = stage.resize_into
        self._lay = stage.lay
        self._statistics = loading.statistics if transform is None else None
        is_rgb = loading.mode == "RGB"
        self.stores: bool = transform is not None or (self._statistics is not None and not is_rgb)
        self._store = transform or _copy
        if self._statistics:
            look_up = normalize.make_lookup(*self._statistics)
            self._store = lambda image, pixels, row: look_up(pixels, row)
        self._jitter = augment.finish if is_rgb else augment.mirror
        self.normalization: Callable[[np.dtype[Any]], Any] = lru_cache(self._normalization)
        if not (transform or self._statistics or self.crops):
            return
        # Resize into a scratch image first; the row gets it normalized, transformed or flipped.
        self._scratch = np.empty(self.shape, dtype=np.uint8)
        self._destination = stage.as_destination(self._scratch)
        self._resize_into = stage.resize_into
        self.as_destination, self.write = unchanged, self._crop_and_write

    def finish(self, image: Image, pixels: PixelArray, row: Arrays) -> None:
        """Turn, flip, jitter and store resized pixels, uint8 (h, w, c). Raises ImageError."""
        self._finish(image, self._lay(image, pixels), row)

    def _finish(self, image: Image, pixels: PixelArray, row: Arrays) -> None:
        drawn = image.augmentation if self.crops else None
        self._store(image, self._jitter(pixels, drawn) if drawn else pixels, row)

    def _normalization(self, dtype: np.dtype[Any]) -> Any:
        """A `_native.Normalization` to rows of this type; None: they are pixels."""
        if self._statistics is None:
            return None
        levels = normalize.levels(*self._statistics, dtype)
        return native.find().Normalization(levels, *self._statistics)

    def _crop_and_write(self, image: Image, pixels: PixelArray, row: Arrays) -> None:
        drawn = image.augmentation if self.crops else None
        cropped = augment.crop(pixels, drawn) if drawn else pixels
        self._resize_into(image, cropped, self._destination)
        self._finish(image, self._scratch, row)


def _copy(image: Image, pixels: PixelArray, row: Arrays) -> None:
    row[...] = pixels


def unchanged(rows: Any) -> Any:
    """The same rows."""
    return rows
