"""Stage `augment`: random resized crop, horizontal flip and colour jitter of training images.

`draw` alone draws the parameters, from a seed of the image's own. In a worker, `crop` cuts the
decoded image before it is resized, and `finish` flips and jitters the uint8 result. Where a device
augments, workers resize whole images to `CANVAS_PX`.

The crop is torchvision's `RandomResizedCrop`, the "Inception" crop of Szegedy et al., "Going Deeper
with Convolutions" (2015), section 6. The jitter has the factors and the grey of its `ColorJitter`,
always in the order brightness, contrast, saturation: each is affine in RGB, so that together they
are one matrix and one offset; values are clamped once, at the end.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from wallclock.errors import UserError, check_name, import_extra
from wallclock.preprocess import size_pair
from wallclock.stages.pixels import PixelArray

#: Side of the square images that a device crops from.
CANVAS_PX = 256
#: Of `Augment`, where nothing else is said; the crop's are torchvision's.
_SCALE, _RATIO, _FLIP, _JITTER = (0.08, 1.0), (3 / 4, 4 / 3), 0.5, 0.4
#: What a function of the user's own may take.
TAKES = ("numpy", "torch", "pil")
#: Grey by ITU-R BT.601, as Pillow and torchvision weight RGB.
GREY = np.array([0.299, 0.587, 0.114])

#: Left, top, width, height in pixels.
Box: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True)
class Augment:
    """What the workers do to training images.

    `scale`: the crop's share of the image's area, least and greatest; `ratio`: its width over its
    height; `flip`: the probability of a horizontal flip; `jitter`: the factors of brightness,
    contrast and saturation are uniform in 1 ± this. The defaults are those of torchvision's
    RandomResizedCrop, 0.5 and 0.4; with a `transform`, all four are off unless set.

    `transform`: a function of your own, called with the image's pixels after all of that.
    `takes`: what it is given, `numpy` (h, w, c), `torch` (c, h, w) or `pil`, always uint8, valid
    until it returns. It returns an array, a tensor or a Pillow image of uint8, in the same layout;
    if `Output.dtype` is a float, it returns floats (c, h, w), stored as they are. `size`: height
    and width of what it returns, or the side of a square; None: those of what it is given. An
    error in it ends the iteration, but an `ImageError` lists that image as a failure.

    `random`: whether it draws random numbers. If it has a parameter `rng`, it gets a numpy
    Generator that depends only on seed, epoch and position. Otherwise the global generators of
    random, numpy and torch are seeded the same way, which needs one-thread processes.
    """

    scale: tuple[float, float] | None = None
    ratio: tuple[float, float] | None = None
    flip: float | None = None
    jitter: float | None = None
    transform: Callable[..., Any] | None = None
    takes: str = "numpy"
    size: int | tuple[int, int] | None = None
    random: bool = True

    def __post_init__(self) -> None:
        self._check_transform()
        is_alone = self.transform is None
        crops = is_alone or self.scale is not None or self.ratio is not None
        defaults: dict[str, Any] = {"scale": _SCALE, "ratio": _RATIO} if crops else {}
        defaults |= {"flip": _FLIP if is_alone else 0.0, "jitter": _JITTER if is_alone else 0.0}
        for name, default in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        for name in ("scale", "ratio"):
            limits = getattr(self, name)
            if limits is not None and (len(limits) != 2 or not 0 < limits[0] <= limits[1]):
                raise UserError(f"augment.{name}={limits}: give a least and a greatest, above 0")
        greatest = self.scale[1] if self.scale else 1.0
        if greatest > 1 or not all(0 <= (share or 0.0) <= 1 for share in (self.flip, self.jitter)):
            raise UserError("augment: scale, flip and jitter are at most 1")

    def _check_transform(self) -> None:
        check_name(self.takes, TAKES, "augment.takes")
        if self.transform is None:
            if self.size is not None:
                raise UserError(f"augment.size={self.size} is of a transform, and there is none")
            return
        if not callable(self.transform):
            raise UserError(f"augment.transform={self.transform!r}: give a function")
        if self.size is not None:
            size_pair(self.size, "augment.size")
        if self.takes == "torch":
            import_extra("torch", "augment.takes=torch", "torch")
        library = str(getattr(self.transform, "__module__", "")).partition(".")[0]
        if library in ("torch", "torchvision") and self.takes == "numpy":
            raise UserError(
                f"augment.transform is {library}'s, which takes no numpy array: add takes='torch', "
                "or takes='pil' for torchvision's first version"
            )

    @property
    def draws_pixels(self) -> bool:
        """Whether it crops, flips or jitters."""
        return self.scale is not None or bool(self.flip) or bool(self.jitter)


class Augmentation(NamedTuple):
    """What happens to one image: a crop in shares of its sides; `key` seeds a transform's draws."""

    left: float
    top: float
    width: float
    height: float
    flip: bool
    brightness: float
    contrast: float
    saturation: float
    key: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing is cut off."""
        return self.width == self.height == 1

    @property
    def jitters(self) -> bool:
        """Whether colours change."""
        return not self.brightness == self.contrast == self.saturation == 1


def draw(
    width: int, height: int, seed: int, epoch: int, index: int, limits: Augment = Augment()
) -> Augmentation:
    """The parameters of image `index`, of this size in its file, in an epoch of a seed's run."""
    # The three in bits of their own: no two images of a run share a generator's state.
    key = (seed << 80) | (epoch << 40) | index
    if not limits.draws_pixels:
        return Augmentation(0, 0, 1, 1, False, 1, 1, 1, key)
    rng = Random(key)
    left, top, w, h = draw_box(width, height, rng, limits)
    jitter = limits.jitter or 0.0
    brightness, contrast, saturation = (rng.uniform(1 - jitter, 1 + jitter) for _ in range(3))
    crop = left / width, top / height, w / width, h / height
    flip = rng.random() < (limits.flip or 0.0)
    return Augmentation(*crop, flip, brightness, contrast, saturation, key)


def draw_box(width: int, height: int, rng: Random, limits: Augment = Augment()) -> Box:
    """A random resized crop, area and log ratio uniform; after ten misses the central one."""
    if limits.scale is None or limits.ratio is None:
        return 0, 0, width, height
    low, high = (math.log(ratio) for ratio in limits.ratio)
    for _ in range(10):
        area = width * height * rng.uniform(*limits.scale)
        ratio = math.exp(rng.uniform(low, high))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, width - w), rng.randint(0, height - h), w, h
    w = min(width, max(1, round(height * limits.ratio[1])))
    h = min(height, max(1, round(width / limits.ratio[0])))
    return (width - w) // 2, (height - h) // 2, w, h


def crop(pixels: PixelArray, augmentation: Augmentation) -> PixelArray:
    """The crop of a decoded image, uint8 (h, w, 3), as a view."""
    left, top, width, height = in_pixels(augmentation, pixels.shape[1], pixels.shape[0])
    return pixels[top : top + height, left : left + width]


def in_pixels(augmentation: Augmentation, width: int, height: int) -> Box:
    """The crop in whole pixels, at least one, of an image that now has this size."""
    left, top, w, h = (
        round(share * side)
        for share, side in zip(augmentation[:4], (width, height) * 2, strict=True)
    )
    left, top = min(left, width - 1), min(top, height - 1)
    return left, top, min(max(w, 1), width - left), min(max(h, 1), height - top)


def finish(pixels: PixelArray, augmentation: Augmentation) -> PixelArray:
    """Flip and jitter: uint8 (h, w, 3) → a new one of the same shape."""
    import cv2

    means = np.array([cv2.mean(pixels)[:3]])
    matrix, offset = jitter_of([augmentation], means)
    affine = np.concatenate([matrix[0], np.repeat(offset, 3)[:, None]], axis=1)
    flipped = cv2.flip(pixels, 1) if augmentation.flip else pixels
    return np.asarray(cv2.transform(flipped, affine), dtype=np.uint8)


def mirror(pixels: PixelArray, augmentation: Augmentation) -> PixelArray:
    """Flip alone, of any channels: uint8 (h, w, c) → a view of the same shape."""
    return pixels[:, ::-1] if augmentation.flip else pixels


def jitter_of(
    augmentations: Sequence[Augmentation], means: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Matrices (n, 3, 3) and grey offsets (n) of images with these channel means (n, 3).

    With g the grey of a pixel and m that of the image's mean: brightness b x; contrast
    c x + (1 - c) b m, because the mean was scaled too; saturation s x + (1 - s) g. In that order
    b c (s x + (1 - s) g) + (1 - c) b m: the offset is grey, which saturation leaves alone.
    """
    b, c, s = np.array([augmentation[5:8] for augmentation in augmentations]).T[..., None, None]
    matrices = b * c * (s * np.eye(3) + (1 - s) * GREY)
    return matrices, ((1 - c) * b)[:, 0, 0] * (means @ GREY)
