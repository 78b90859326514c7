"""The geometry of preprocessing: how an image of any size becomes the array that a network takes.

Sizes, borders and roundings are those of transformers' image processors with the Pillow backend
(transformers 5, `image_transforms.get_resize_output_image_size` and `center_crop`).
"""

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeAlias

from wallclock.constraints import OneOf, build
from wallclock.errors import UsageError, check_name
from wallclock.recipe import Recipe

#: Height and width in pixels.
Size: TypeAlias = tuple[int, int]

#: squash: to `size`, whatever the aspect ratio. shortest, longest: that side to `size`, the other
#: one in proportion. none: as it is.
RESIZES = ("squash", "shortest", "longest", "none")
#: The text of `none` without a crop.
ORIGINAL = "original"
#: Pillow's names of the filters that antialias.
FILTERS = ("bilinear", "bicubic", "lanczos")
_MOST_PX = 8192
#: What makes images of one size.
ADD_CROP = "add crop:HEIGHTxWIDTH"


class Placement(NamedTuple):
    """Where an image comes to lie. All are (rows, columns) in pixels.

    The image is resized to `resized`. Of that, `window` from `start` on is what is used; it comes
    to lie at `offset` of the canvas, whose other pixels are black.
    """

    resized: Size
    start: Size
    window: Size
    offset: Size


@dataclass(frozen=True)
class Preprocess:
    """Resize, then cut out the center; a smaller image is padded with black.

    `size`: height and width in pixels; for `shortest` and `longest`, both are that side's length.
    `crop`: height and width of the result; None: no crop. `rotate`: first turn the image as its
    EXIF orientation says. Without a crop, only `squash` makes all images the same size.

    As text: `shortest:256,crop:224x224,bicubic,rotate`; `original` leaves the image as it is.
    """

    resize: Annotated[str, OneOf(RESIZES)] = "squash"
    size: Size = (224, 224)
    crop: Size | None = None
    interpolation: Annotated[str, OneOf(FILTERS)] = "bilinear"
    rotate: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", size_pair(self.size, "size"))
        if self.crop is not None:
            object.__setattr__(self, "crop", size_pair(self.crop, "crop"))
        if self.resize in ("shortest", "longest") and self.size[0] != self.size[1]:
            raise UsageError(f"preprocess={self.resize}: give one number, as in {self.resize}:256")

    @classmethod
    def parse(cls, text: str, default_px: int = 224, *, sizes_differ: bool = False) -> "Preprocess":
        """From its text; `squash` without a size resizes to `default_px`.

        Raises UsageError: it is not understood, or images would differ in size and `sizes_differ`
        is not set.
        """
        values: dict[str, object] = {"size": (default_px, default_px)}
        for word in text.split(","):
            name, _, number = word.strip().partition(":")
            if name == ORIGINAL:
                values["resize"] = "none"
            elif name in RESIZES:
                values["resize"] = name
                if number:
                    values["size"] = _size_of(number, text)
            elif name == "crop":
                values["crop"] = _size_of(number, text)
            elif name in FILTERS:
                values["interpolation"] = name
            elif name == "rotate":
                values["rotate"] = True
            else:
                names = (*RESIZES, ORIGINAL, "crop", *FILTERS, "rotate")
                check_name(name, names, "preprocess")
        preprocess = build(cls, values, "preprocess")
        if not (sizes_differ or preprocess.one_size):
            raise UsageError(f"preprocess={text}: images would differ in size; {ADD_CROP}")
        return preprocess

    def __str__(self) -> str:
        height, width = self.size
        words = [self.resize if self.one_size else ORIGINAL]
        if self.resize == "squash":
            words = [f"squash:{height}x{width}"]
        elif self.resize != "none":
            words = [f"{self.resize}:{height}"]
        if self.crop is not None:
            words.append(f"crop:{self.crop[0]}x{self.crop[1]}")
        words.append(self.interpolation)
        return ",".join([*words, "rotate"] if self.rotate else words)

    @property
    def one_size(self) -> bool:
        """Whether it makes images of one size of all."""
        return self.resize == "squash" or self.crop is not None

    @property
    def canvas(self) -> Size:
        """Height and width of the result. Raises UsageError: results differ in size."""
        if not self.one_size:
            raise UsageError(f"preprocess={self}: images differ in size; {ADD_CROP}")
        return self.size if self.crop is None else self.crop

    def resized(self, height: int, width: int) -> Size:
        """The size to which an image of this (rotated) size is resized."""
        if self.resize == "squash":
            return self.size
        if self.resize == "none":
            return height, width
        side = self.size[0]
        anchor = min(height, width) if self.resize == "shortest" else max(height, width)
        # The anchor's side is exact; the other one is rounded down, as transformers does.
        rows = side if height == anchor else max(1, int(side * height / anchor))
        columns = side if width == anchor else max(1, int(side * width / anchor))
        return rows, columns

    def place(self, height: int, width: int) -> Placement:
        """Where an image of this (rotated) size comes to lie."""
        resized = self.resized(height, width)
        canvas = self.canvas if self.one_size else resized
        row_start, rows, row_offset = _centered(resized[0], canvas[0])
        column_start, columns, column_offset = _centered(resized[1], canvas[1])
        start, window = (row_start, column_start), (rows, columns)
        return Placement(resized, start, window, (row_offset, column_offset))


def denominator_for(height: int, width: int, needed_height: float, needed_width: float) -> int:
    """8, 4, 2 or 1: the most that leaves an image of this size as many rows and columns."""
    for n in (8, 4, 2):
        if -(-height // n) >= needed_height and -(-width // n) >= needed_width:
            return n
    return 1


def preprocess_of(recipe: Recipe, px: int, *, sizes_differ: bool = False) -> Preprocess:
    """What a recipe does to an image's geometry, for `px` × `px` pixels. Raises UsageError."""
    if recipe.preprocess == "squash":
        return Preprocess("squash", (px, px), None, recipe.interpolation)
    return Preprocess.parse(recipe.preprocess, px, sizes_differ=sizes_differ)


def _centered(resized: int, canvas: int) -> tuple[int, int, int]:
    """Along one axis: first pixel that is used, how many, and where they lie on the canvas."""
    if resized >= canvas:
        return (resized - canvas) // 2, canvas, 0
    return 0, resized, -(-(canvas - resized) // 2)


def _size_of(text: str, whole: str) -> Size:
    height, _, width = text.partition("x")
    try:
        return int(height), int(width or height)
    except ValueError:
        example = "shortest:256,crop:224x224,bicubic"
        raise UsageError(f"preprocess={whole}: give sizes as in {example}") from None


def size_pair(size: Any, name: str) -> Size:
    """A height and a width, of which one number is both. Raises UsageError."""
    sides = (size, size) if isinstance(size, int) else size
    is_pair = isinstance(sides, tuple | list) and len(sides) == 2
    if not is_pair or not all(isinstance(px, int) and 0 < px <= _MOST_PX for px in sides):
        raise UsageError(f"{name}={size!r}: give a height and a width of 1 to {_MOST_PX} pixels")
    return sides[0], sides[1]
