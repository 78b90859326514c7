"""How an image becomes a row of a batch: one frozen record, in which every choice is made."""

from dataclasses import dataclass

from wallclock.check import Image
from wallclock.errors import UserError
from wallclock.orientation import UPRIGHT, oriented_size
from wallclock.preprocess import Preprocess, denominator_for, preprocess_of, size_pair
from wallclock.recipe import FAST, Recipe, Statistics

#: Pixels that a decode at reduced scale leaves along each side, at least, per pixel of the result.
#: A resize that keeps the aspect ratio shows more of what the scale loses than a squash: with 1.25
#: the worst of 60 photos had 39.5 dB with bicubic, with 2.0 the worst of 277 had 39.7 dB with
#: bilinear, with 1.6 38.3 dB with lanczos.
_LEAST_MARGINS = {"bilinear": 2.5, "bicubic": 1.5, "lanczos": 2.0}
_PX = 224


@dataclass(frozen=True)
class Loading:
    """What decodes and resizes an image, to which geometry, and what its row is.

    `name`: of the geometry, for labels. `margin`: sides of a JPEG that is decoded to less, over the
    result's, at least; 0: it is decoded in full. `statistics`: rows are floats (c, h, w),
    normalized by these; None: uint8 (h, w, c). `mode`: of `decode.MODES`. `crops`: whether what was
    drawn for an image (`augment.draw`) is applied to it.
    """

    geometry: Preprocess
    decoder: str
    resizer: str
    name: str
    margin: float
    statistics: Statistics | None = None
    mode: str = "RGB"
    crops: bool = False

    @classmethod
    def of(cls, recipe: Recipe, px: int) -> "Loading":
        """A recipe's, to pixels for a network of `px` × `px`. Raises as `preprocess_of`."""
        geometry = preprocess_of(recipe, px, sizes_differ=True)
        return _loading(recipe, geometry, recipe.preprocess)


def loading_for(size: int | tuple[int, int] | None, preprocess: str | Preprocess) -> Loading:
    """How images are loaded to a size, or to another geometry. Raises UserError: they differ."""
    sides = None if size is None else size_pair(size, "size")
    text = str(preprocess)
    if text == "squash":
        height, width = sides or (_PX, _PX)
        if height == width:
            return Loading.of(FAST, height)
        text = f"squash:{height}x{width},bilinear"
    geometry = Preprocess.parse(text, sizes_differ=True)
    if sides is not None and not (geometry.one_size and geometry.canvas == sides):
        made = "each image's own size"
        if geometry.one_size:
            made = "{} × {} pixels".format(*geometry.canvas)
        raise UserError(f"size={sides}, but preprocess={geometry} makes {made}; leave out size")
    return _loading(FAST, geometry, str(geometry))


def _loading(recipe: Recipe, geometry: Preprocess, name: str) -> Loading:
    least = 0.0 if name == "squash" else _LEAST_MARGINS[geometry.interpolation]
    margin = max(recipe.dct_margin, least) if recipe.dct_scale == "auto" else 0.0
    return Loading(geometry, recipe.decoder, recipe.resizer, name, margin)


class ChooseScale:
    """The DCT scale of an image: the smallest that leaves enough pixels for its geometry."""

    def __init__(self, loading: Loading) -> None:
        self._geometry, self._margin, self._crops = loading.geometry, loading.margin, loading.crops

    def __call__(self, image: Image) -> int:
        """8, 4, 2 or 1."""
        turn = image.orientation if self._geometry.rotate else UPRIGHT
        height, width = oriented_size(image.height, image.width, turn)
        if self._crops and (drawn := image.augmentation):
            height, width = round(height * drawn.height), round(width * drawn.width)
        rows, columns = self._geometry.resized(height, width)
        return denominator_for(height, width, self._margin * rows, self._margin * columns)
