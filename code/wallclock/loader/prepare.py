"""From an image's bytes to its row in a batch: the stages of one thread, bound to one recipe."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from wallclock import native
from wallclock.check import LARGE_PIXELS, Image
from wallclock.errors import Unavailable, image_errors
from wallclock.fetch.reader import Reader
from wallclock.loader.at_once import AtOnce, Ways
from wallclock.loader.place import ChooseScale, KeepShape, PlaceImage
from wallclock.preprocess import Size, preprocess_of
from wallclock.recipe import ModelSpec, Recipe
from wallclock.stages import augment, decode, normalize
from wallclock.stages.augment import augmentation_of
from wallclock.stages.pixels import PixelArray, copied

#: Normalized float32 (3, h, w), or uint8 (h, w, 3) where the device normalizes; or n of them.
Arrays: TypeAlias = npt.NDArray[Any]

#: Decoded bytes in flight are bounded: of pictures this large, one at a time in a process.
one_large = Lock()
unlimited = nullcontext()


@dataclass(frozen=True)
class InPlaceStages:
    """The stages before the device for one thread that fills rows of a batch buffer.

    `as_destination` turns a row of the buffer into what `resize_into` takes; `resize_into`
    resizes into it, and normalizes on the way where the recipe does so on the host. `labels` names
    the decoder, the resizer and the reader that were bound. `at_once`: loads many images, where
    the native module is here and can.
    """

    read: Callable[[Any], bytes]
    decode: Callable[[Image, bytes], PixelArray]
    as_destination: Callable[[Any], Any]
    resize_into: Callable[[Image, PixelArray, Any], None]
    labels: Mapping[str, str] = field(default_factory=dict)
    at_once: AtOnce | None = None

    def fill(self, image: Image, data: bytes, destination: Any) -> None:
        """Decode and resize one image into a destination. Raises ImageError."""
        with one_large if image.pixels > LARGE_PIXELS else unlimited:
            self.resize_into(image, self.decode(image, data), destination)


#: Binds the stages of one thread; all threads share the reader.
BuildInPlace: TypeAlias = Callable[[Recipe, ModelSpec, Reader], InPlaceStages]
#: Writes an image's pixels, uint8 (h, w, c), into its row.
Store: TypeAlias = Callable[[Image, PixelArray, Arrays], None]
#: Resizes a decoded image into a destination, which is made of a row.
_ResizeInto: TypeAlias = Callable[[Image, PixelArray, Any], None]


def loaded_size(recipe: Recipe, model: ModelSpec) -> Size:
    """Height and width of the images that the loader delivers. Raises as `preprocess_of`."""
    if recipe.augment == "device":
        return augment.CANVAS_PX, augment.CANVAS_PX
    return preprocess_of(recipe, model.input_px).canvas


def in_place_stages(
    recipe: Recipe,
    model: ModelSpec,
    reader: Reader,
    mode: str = "RGB",
    transform: Store | None = None,
) -> InPlaceStages:
    """Bind the stages before the device for one thread; all threads share `reader`.

    Rows are uint8 (h, w, c), or float32 (c, h, w) where the recipe normalizes on the host.

    Args:
        mode: of `decode.MODES`.
        transform: what writes into a row in the place of the recipe's normalization.

    Raises:
        UserError: an unknown decoder, resizer or interpolation.
        Unavailable: a library that the recipe needs is not installed, or has no such mode.
    """
    decode_image = DecodeImage(recipe, loaded_size(recipe, model)[0], reuse=True, mode=mode)
    rows = RowWriter(recipe, model, mode, transform)
    stages = _stages(reader, decode_image, rows.as_destination, rows.write, rows.labels)
    if (decode_image.decoder, rows.labels["resizer"]) != ("native", "native"):
        return stages
    preprocess = preprocess_of(recipe, rows.shape[0])
    ways = Ways(rows, preprocess, decode_image.denominator)
    others = DecodeImage(
        replace(recipe, decoder="simplejpeg"), rows.shape[0], reuse=True, mode=mode
    )
    at_once = AtOnce(ways, rows, reader, stages.read, others.__call__)
    return replace(stages, at_once=at_once)


def own_shape_stages(
    recipe: Recipe,
    model: ModelSpec,
    reader: Reader,
    most_pixels: int,
    mode: str = "RGB",
    transform: Store | None = None,
) -> InPlaceStages:
    """The same for images of which each keeps a size of its own; a row is an array of one object.

    Args:
        most_pixels: of a result.
        transform: what writes into a row; None: it becomes a new array, uint8 (h, w, c).

    Raises as `in_place_stages`.
    """
    preprocess = preprocess_of(recipe, model.input_px, sizes_differ=True)
    decode_image = DecodeImage(recipe, model.input_px, reuse=True, mode=mode)
    resize_own = KeepShape(preprocess, _resizer(recipe, mode), most_pixels)
    store = transform or _store_array
    labels = {"resizer": resize_own.name, "preprocess": str(preprocess)}

    def resize_and_store(image: Image, pixels: PixelArray, row: Arrays) -> None:
        store(image, resize_own(image, pixels), row)

    return _stages(reader, decode_image, _unchanged, resize_and_store, labels)


def _stages(
    reader: Reader,
    decode_image: "DecodeImage",
    as_destination: Callable[[Any], Any],
    resize_into: _ResizeInto,
    labels: Mapping[str, str],
) -> InPlaceStages:
    return InPlaceStages(
        read=image_errors("read", reader.layout, reader.__call__),
        decode=decode_image.__call__,
        as_destination=as_destination,
        resize_into=resize_into,
        labels={"decoder": decode_image.decoder, "layout": reader.layout, **labels},
    )


def _resizer(recipe: Recipe, mode: str) -> str:
    """What resizes: of RGBA Pillow, which weights colours by their alpha.

    Raises Unavailable: there is none.
    """
    if mode != "RGB" and recipe.resizer == "opencv":
        raise Unavailable(f"resizer=opencv is for RGB, not for {mode}; set resizer=torch or pil")
    return "pil" if mode == "RGBA" else recipe.resizer


class RowWriter:
    """Writes decoded images into rows of a batch: crops, resizes, flips and stores them.

    Args:
        mode: of `decode.MODES`.
        transform: what writes into a row in the place of the recipe's normalization.

    Attributes:
        shape, crops, stores: see `Rows`.
        as_destination: a row as `write` takes it.
        write: an image and its pixels into a destination. Raises ImageError.
        labels: what resizes, and to which geometry.
    """

    def __init__(
        self, recipe: Recipe, model: ModelSpec, mode: str, transform: Store | None
    ) -> None:
        size, self.crops = loaded_size(recipe, model), recipe.augment == "cpu"
        self.shape = (*size, decode.MODES[mode])
        preprocess = preprocess_of(recipe, size[0])
        stage = PlaceImage(preprocess, _resizer(recipe, mode), crops=self.crops)
        self.labels = stage.labels | {"preprocess": recipe.preprocess}
        self.as_destination: Callable[[Any], Any] = stage.as_destination
        self.write: _ResizeInto = stage.resize_into
        self._lay = stage.lay
        normalizes = transform is None and recipe.normalize_on == "host"
        self._statistics = model.statistics if normalizes else None
        self.stores = transform is not None or (normalizes and mode != "RGB")
        self._store = _store_normalized(model) if normalizes else transform or _copy
        self._jitter = augment.finish if mode == "RGB" else augment.mirror
        self.normalization = lru_cache(self._normalization)
        if not (transform or normalizes or self.crops):
            return
        # Resize into a scratch image first; the row gets it normalized, transformed or flipped.
        self._scratch = np.empty(self.shape, dtype=np.uint8)
        self._destination = stage.as_destination(self._scratch)
        self._resize_into = stage.resize_into
        self.as_destination, self.write = _unchanged, self._crop_and_write

    def finish(self, image: Image, pixels: PixelArray, row: Arrays) -> None:
        """Turn, flip, jitter and store resized pixels, uint8 (h, w, c). Raises ImageError."""
        self._finish(image, self._lay(image, pixels), row)

    def _finish(self, image: Image, pixels: PixelArray, row: Arrays) -> None:
        drawn = augmentation_of(image) if self.crops else None
        self._store(image, self._jitter(pixels, drawn) if drawn else pixels, row)

    def _normalization(self, dtype: np.dtype[Any]) -> Any:
        if self._statistics is None:
            return None
        levels = normalize.levels(*self._statistics, dtype)
        return native.find().Normalization(levels, *self._statistics)

    def _crop_and_write(self, image: Image, pixels: PixelArray, row: Arrays) -> None:
        drawn = augmentation_of(image) if self.crops else None
        cropped = augment.crop(pixels, drawn) if drawn else pixels
        self._resize_into(image, cropped, self._destination)
        self._finish(image, self._scratch, row)


def _store_normalized(model: ModelSpec) -> Store:
    write = normalize.make_lookup(*model.statistics)
    return lambda image, pixels, row: write(pixels, row)


def _store_array(image: Image, pixels: PixelArray, row: Arrays) -> None:
    # The decoder's buffer is used again, and Pillow's memory or the user's is not ours.
    row[0] = copied(pixels)


def _copy(image: Image, pixels: PixelArray, row: Arrays) -> None:
    row[...] = pixels


def _unchanged(row: Any) -> Any:
    return row


class DecodeImage:
    """Decodes any image as a recipe says: JPEGs by its decoder, at the scale that suffices.

    Args:
        px: side of the square that the pixels will be resized to, if the recipe squashes.
        reuse: into a buffer of the decoder's own, valid until the next call.
        mode: of `decode.MODES`.

    Raises as `decode.make` does.
    """

    def __init__(self, recipe: Recipe, px: int, *, reuse: bool = False, mode: str = "RGB") -> None:
        scales, self._crops = recipe.dct_scale == "auto", recipe.augment == "cpu"
        # The decomposition times arrays between its stages, and a crop is cut from one; a job has
        # no need of them.
        needs_array = recipe.engine == "serial" or self._crops
        resizer = "" if needs_array else recipe.resizer
        self._decode = decode.make(
            recipe.decoder, scales=scales, reuse=reuse, resizer=resizer, mode=mode
        )
        self._decode_other = decode.make_other(recipe.decoder, reuse=reuse, mode=mode)
        self._scaling = decode.Scaling(px, recipe.dct_margin) if scales else None
        self._choose_scale: Callable[[Image], int] = self._scale
        if recipe.preprocess != "squash":
            preprocess = preprocess_of(recipe, px, sizes_differ=True)
            self._choose_scale = ChooseScale(preprocess, recipe.dct_margin)
        #: The name of the decoder, read back.
        self.decoder = decode.name_of(self._decode)

    def __call__(self, image: Image, data: bytes) -> PixelArray:
        """Uint8 (h, w, c), or Pillow's image where Pillow resizes. Raises ImageError."""
        if not image.plain_jpeg:
            return self._decode_other(data)
        if self._scaling is None:
            return self._decode(data)
        return self._decode(data, self._choose_scale(image), image.current_size)

    def denominator(self, image: Image) -> int:
        """8, 4, 2 or 1: the scale of a plain JPEG; 1 of other images."""
        scales = self._scaling is not None and image.plain_jpeg
        return self._choose_scale(image) if scales else 1

    def _scale(self, image: Image) -> int:
        assert self._scaling is not None
        drawn = augmentation_of(image) if self._crops else None
        if drawn is None:
            return self._scaling.denominator(image.width, image.height)
        # Of a crop, its own sides have to suffice.
        return self._scaling.denominator(image.width * drawn.width, image.height * drawn.height)
