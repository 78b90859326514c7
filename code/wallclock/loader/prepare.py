"""From an image's bytes to its row in a batch: the stages of one thread, bound to one recipe."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from wallclock.check import LARGE_PIXELS, Image
from wallclock.clock import in_ranges
from wallclock.errors import UserError, image_errors
from wallclock.fetch.reader import Reader
from wallclock.loader.place import ChooseScale, PlaceImage
from wallclock.preprocess import Size, preprocess_of
from wallclock.recipe import ModelSpec, Recipe
from wallclock.stages import augment, decode, normalize, resize
from wallclock.stages.augment import Augmentation
from wallclock.stages.decode import scans
from wallclock.stages.pixels import PixelArray

#: Normalized float32 (3, h, w), or uint8 (h, w, 3) where the device normalizes; or n of them.
Arrays: TypeAlias = npt.NDArray[Any]

_unlimited = nullcontext()


@dataclass(frozen=True)
class InPlaceStages:
    """The stages before the device for one thread that fills rows of a batch buffer.

    `as_destination` turns a row of the buffer into what `resize_into` takes; `resize_into`
    resizes into it, and normalizes on the way where the recipe does so on the host. `labels` names
    the decoder, the resizer and the reader that were bound.
    """

    read: Callable[[Any], bytes]
    decode: Callable[[Image, bytes], PixelArray]
    as_destination: Callable[[Any], Any]
    resize_into: Callable[[Image, PixelArray, Any], None]
    labels: Mapping[str, str] = field(default_factory=dict)

    def fill(
        self,
        image: Image,
        data: bytes,
        destination: Any,
        one_large: AbstractContextManager[Any] = _unlimited,
    ) -> None:
        """Decode and resize one image into a destination. Raises ImageError.

        `one_large`: held while a large picture is decoded, which takes much memory.
        """
        with one_large if image.pixels > LARGE_PIXELS else _unlimited:
            self.resize_into(image, self.decode(image, data), destination)


#: Binds the stages of one thread; all threads share the reader.
BuildInPlace: TypeAlias = Callable[[Recipe, ModelSpec, Reader], InPlaceStages]


def augmentation_of(image: Any) -> Augmentation | None:
    """What was drawn for this request of the image; None: nothing."""
    return getattr(image, "augmentation", None)


def loaded_px(recipe: Recipe, model: ModelSpec) -> int:
    """Side of the square images that the loader delivers: larger where the device crops.

    Raises UserError: they are not square.
    """
    height, width = loaded_size(recipe, model)
    if height != width:
        raise UserError(f"recipe.preprocess={recipe.preprocess}: only squares are measured")
    return height


def loaded_size(recipe: Recipe, model: ModelSpec) -> Size:
    """Height and width of the images that the loader delivers. Raises as `preprocess_of`."""
    if recipe.augment == "device":
        return augment.CANVAS_PX, augment.CANVAS_PX
    return preprocess_of(recipe, model.input_px).canvas


def in_place_stages(recipe: Recipe, model: ModelSpec, reader: Reader) -> InPlaceStages:
    """Bind the stages before the device for one thread; all threads share `reader`.

    Rows are uint8 (h, w, 3), or float32 (3, h, w) where the recipe normalizes on the host.

    Raises:
        UserError: an unknown decoder, resizer or interpolation.
        Unavailable: a library that the recipe needs is not installed.
    """
    size, crops = loaded_size(recipe, model), recipe.augment == "cpu"
    decode_image = DecodeImage(recipe, size[0], reuse=True)
    name, as_destination, fill_row = _resize_stage(recipe, size)
    on_host = recipe.normalize_on == "host"
    if on_host or crops:
        resize_row = fill_row
        scratch = np.empty((*size, 3), dtype=np.uint8)
        destination = as_destination(scratch)
        to_float_chw = normalize.make(*model.statistics)

        def resize_and_finish(image: Image, pixels: PixelArray, row: Arrays) -> None:
            drawn = augmentation_of(image) if crops else None
            resize_row(image, augment.crop(pixels, drawn) if drawn else pixels, destination)
            finished = augment.finish(scratch, drawn) if drawn else scratch
            if on_host:
                normalize.store(to_float_chw(finished), row)
            else:
                row[...] = finished

        as_destination, fill_row = _unchanged, resize_and_finish
    stages = InPlaceStages(
        read=image_errors("read", reader.layout, reader.__call__),
        decode=decode_image.__call__,
        as_destination=as_destination,
        resize_into=fill_row,
        labels={"decoder": decode_image.decoder, "resizer": name, "layout": reader.layout},
    )
    return in_ranges(stages, {"read": "read", "decode": "decode", "resize_into": "resize"})


def _resize_stage(
    recipe: Recipe, size: Size
) -> tuple[str, Callable[[Any], Any], Callable[[Image, PixelArray, Any], None]]:
    """The resizer's name, what makes a destination of a row, and what fills that."""
    if recipe.preprocess != "squash":
        place = PlaceImage(preprocess_of(recipe, size[0]), recipe.resizer)
        return place.name, place.as_destination, place.resize_into
    resizer = resize.make(recipe.resizer, recipe.interpolation, size)
    crops = recipe.augment == "cpu"

    def resize_into(image: Image, pixels: PixelArray, row: Any) -> None:
        # A crop has no size in the file that would bound it.
        resizer.resize_into(row, pixels, None if crops else (image.height, image.width))

    fill_row = image_errors("resize", resizer.name, resize_into)
    return resizer.name, resizer.as_destination, fill_row


def _unchanged(row: Any) -> Any:
    return row


class DecodeImage:
    """Decodes any image as a recipe says: JPEGs by its decoder, at the scale that suffices.

    Args:
        px: side of the square that the pixels will be resized to, if the recipe squashes.
        reuse: into a buffer of the decoder's own, valid until the next call.

    Raises as `decode.make` does.
    """

    def __init__(self, recipe: Recipe, px: int, *, reuse: bool = False) -> None:
        scales, self._crops = recipe.dct_scale == "auto", recipe.augment == "cpu"
        # The decomposition times arrays between its stages, and a crop is cut from one; a job has
        # no need of them.
        needs_array = recipe.engine == "serial" or self._crops
        resizer = "" if needs_array else recipe.resizer
        self._decode = decode.make(recipe.decoder, scales=scales, reuse=reuse, resizer=resizer)
        self._scaling = decode.Scaling(px, recipe.dct_margin) if scales else None
        self._choose_scale: Callable[[Image], int] = self._scale
        if recipe.preprocess != "squash":
            self._choose_scale = ChooseScale(preprocess_of(recipe, px), recipe.dct_margin)
        self._cuts = recipe.progressive == "exact"
        #: The name of the decoder, read back.
        self.decoder = decode.name_of(self._decode)

    def __call__(self, image: Image, data: bytes) -> PixelArray:
        """Uint8 (h, w, 3), or Pillow's image where Pillow resizes. Raises ImageError."""
        if not image.plain_jpeg:
            return decode.decode_other(data)
        if self._scaling is None:
            return self._decode(data)
        scale = self._choose_scale(image)
        if self._cuts and image.process == "progressive":
            data = scans.cut(data, scale)
        return self._decode(data, scale, image.current_size)

    def _scale(self, image: Image) -> int:
        assert self._scaling is not None
        drawn = augmentation_of(image) if self._crops else None
        if drawn is None:
            return self._scaling.denominator(image.width, image.height)
        # Of a crop, its own sides have to suffice.
        return self._scaling.denominator(image.width * drawn.width, image.height * drawn.height)
