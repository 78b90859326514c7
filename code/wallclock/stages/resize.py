"""Stage `resize`: an RGB array to a fixed size, by filters that antialias.

torch has Pillow's filters in vector code: the same pixels but for rounding. The native module has
torch's, to the bit; what it lacks (lanczos, an alpha channel), and all where it was not compiled,
torch resizes, and Pillow where torch is not installed. Only Pillow weights colours by their alpha.

An image decoded to 1/n rarely ends with whole pixels: 1873 px at 1/4 are 468.25, in 469. Given the
size in the file, 468.25 are resized; all 469 would shift the image by up to half a pixel.
"""

from functools import lru_cache
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from wallclock import native
from wallclock.errors import ImageError, Unavailable, check_name
from wallclock.preprocess import Placement, Size
from wallclock.recipe import INTERPOLATIONS
from wallclock.stages.pixels import PixelArray, as_array, as_stored

#: Interpolations of the native module.
NATIVE = ("bilinear", "bicubic")

#: Height and width of an image in its file, where it may have been decoded to less; None: in full.
Full: TypeAlias = tuple[int, int] | None


class Resizer:
    """One resizer at one size; returns a new image, or writes into a row of a batch."""

    name = ""

    def __init__(self, interpolation: str, size: Size) -> None:
        self.interpolation, self._size = interpolation, size
        #: What resizes, read back.
        self.labels = {"resizer": self.name, "interpolation": interpolation}

    def resize(self, pixels: PixelArray, full: Full = None) -> PixelArray:
        """Uint8 (h, w, c) → uint8 (*size, c); raises `ImageError`."""
        resized = np.empty((*self._size, pixels.shape[2]), dtype=np.uint8)
        self.resize_into(self.as_destination(resized), pixels, full)
        return resized

    def as_destination(self, row: PixelArray) -> Any:
        """A row (*size, c) as `resize_into` takes it: once for a row, not for each image."""
        return row

    def resize_into(self, destination: Any, pixels: PixelArray, full: Full = None) -> None:
        """Like `resize`, into a destination."""

    def resize_window(self, pixels: PixelArray, placement: Placement, full: Full) -> PixelArray:
        """A window of the image resized to `placement.resized`; valid until the next call only."""
        raise NotImplementedError


def extent(size: tuple[int, ...], full: tuple[int, int]) -> tuple[float, float]:
    """How many rows and columns of a DCT-scaled array the full image covers; else ImageError."""
    height, width = size
    for n in (1, 2, 4, 8):
        if (-(-full[0] // n), -(-full[1] // n)) == (height, width):
            return full[0] / n, full[1] / n
    listed = f"of a file that was listed with {full[1]} × {full[0]}"
    raise ImageError("resize", f"{width} × {height} px were decoded {listed}")


def make(name: str, interpolation: str, size: int | Size) -> Resizer:
    """The resizer to a height and a width, or to a square. Raises UserError, Unavailable."""
    check_name(name, RESIZERS, "resizer")
    check_name(interpolation, INTERPOLATIONS[name], f"interpolation of resizer={name}")
    if name == "native" and (native.find() is None or interpolation not in NATIVE):
        name = otherwise()
    return RESIZERS[name](interpolation, (size, size) if isinstance(size, int) else size)


def otherwise() -> str:
    """What resizes in the place of `native`."""
    return "torch" if find_spec("torch") else "pil"


class _Pillow(Resizer):
    name = "pil"

    def resize(self, pixels: PixelArray, full: Full = None) -> PixelArray:
        image = _as_image(pixels)
        size = (image.height, image.width)
        height, width = extent(size, full) if full else size
        resample = Image.Resampling[self.interpolation.upper()]
        return as_array(image.resize(self._size[::-1], resample, (0, 0, width, height)))

    def resize_into(self, destination: PixelArray, pixels: PixelArray, full: Full = None) -> None:
        destination[...] = self.resize(pixels, full)

    def resize_window(self, pixels: PixelArray, placement: Placement, full: Full) -> PixelArray:
        image = _as_image(pixels)
        height, width = extent((image.height, image.width), full) if full else image.size[::-1]
        # Where the window lies in the source; Pillow's filters also see the pixels around it.
        down, across = height / placement.resized[0], width / placement.resized[1]
        top, left = placement.start
        rows, columns = placement.window
        box = (left * across, top * down, (left + columns) * across, (top + rows) * down)
        # A product may exceed the side in its last bit, which Pillow refuses.
        box = (box[0], box[1], min(box[2], image.width), min(box[3], image.height))
        resample = Image.Resampling[self.interpolation.upper()]
        return as_array(image.resize((columns, rows), resample, box))


def _as_image(pixels: Any) -> Image.Image:
    if isinstance(pixels, Image.Image):
        return pixels
    return Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels)


class _Torch(Resizer):
    """The function behind `torch.nn.functional.interpolate(antialias=True)`, which has no `out`."""

    name = "torch"

    def __init__(self, interpolation: str, size: Size) -> None:
        import torch

        super().__init__(interpolation, size)
        function: Any = getattr(torch._C._nn, f"_upsample_{interpolation}2d_aa", None)
        if function is None:  # an older torch has no lanczos
            version = f"torch {torch.__version__}"
            raise Unavailable(f"resizer=torch: {version} has no {interpolation}; use resizer=pil")
        self._function = function
        self._from_numpy = torch.from_numpy
        self._whole = np.empty((0, 0, 3), np.uint8)
        self._into_whole: Any = None

    def as_destination(self, row: PixelArray) -> Any:
        # Shape (1, c, h, w) over the memory of (h, w, c); by numpy: torch's calls release the GIL.
        return self._from_numpy(row.reshape(1, *row.shape).transpose(0, 3, 1, 2))

    def resize_into(self, destination: Any, pixels: PixelArray, full: Full = None) -> None:
        stored = as_stored(pixels)
        if stored.shape[2] != pixels.shape[2]:
            made = np.empty((*self._size, 4), np.uint8)
            self.resize_into(self.as_destination(made), stored, full)
            destination.copy_(self.as_destination(made)[:, :3])
            return
        view = self.as_destination(stored)
        scales: tuple[float | None, float | None] = None, None
        if full is not None and pixels.shape[:2] != full:
            height, width = extent(pixels.shape[:2], full)
            scales = self._size[0] / height, self._size[1] / width
        self._function(view, self._size, False, *scales, out=destination)

    def resize_window(self, pixels: PixelArray, placement: Placement, full: Full) -> PixelArray:
        height, width = extent(pixels.shape[:2], full) if full else pixels.shape[:2]
        (top, left), (rows, columns) = placement.start, placement.window
        if placement.resized == (height, width):  # as thumbnails are for a model that crops them
            return pixels[top : top + rows, left : left + columns]
        stored = as_stored(pixels)
        # The function has no offset: what lies above and left of the window is made, too. The
        # source could be cut only where whole pixels of it make whole pixels of the result; and
        # torch copies a view that lacks columns, which takes as long as making them.
        size = (
            _never_skipped(top + rows, pixels.shape[0], placement.resized[0]),
            _never_skipped(left + columns, pixels.shape[1], placement.resized[1]),
        )
        shape = *size, stored.shape[2]
        if self._whole.shape != shape:  # kept for the next image, which is often of that size
            self._whole = np.empty(shape, np.uint8)
            self._into_whole = self.as_destination(self._whole)
        scales = placement.resized[0] / height, placement.resized[1] / width
        self._function(self.as_destination(stored), size, False, *scales, out=self._into_whole)
        return self._whole[top : top + rows, left : left + columns, : pixels.shape[2]]


def _never_skipped(made: int, stored: int, resized: int) -> int:
    """The rows to make, one more where torch (UpSampleKernel.cpp) would leave them as they are."""
    return made + 1 if made == stored != resized else made


class _Native(Resizer):
    name = "native"

    def __init__(self, interpolation: str, size: Size) -> None:
        super().__init__(interpolation, size)
        self._module = native.find()
        self._plan = lru_cache(1024)(self._make_plan)
        self._window = np.empty((0, 0, 3), np.uint8)

    def _make_plan(self, shape: Size, full: Full, placement: Placement | None) -> Any:
        resized = placement.resized if placement else self._size
        window = (*placement.start, *placement.window) if placement else None
        covered = extent(shape, full) if full else None
        bicubic = self.interpolation == "bicubic"
        try:
            return self._module.Plan(shape, resized, extent=covered, window=window, bicubic=bicubic)
        except ValueError:  # a side of a million pixels
            return None

    def _is_done(
        self, row: PixelArray, pixels: PixelArray, full: Full, placement: Placement | None
    ) -> bool:
        """Whether the pixels were resized into the row; else it is too much for the module."""
        plan = self._plan(pixels.shape[:2], full, placement)
        return plan is not None and self._module.resize(pixels, plan, row) == 0

    def _other(self) -> Resizer:
        return RESIZERS[otherwise()](self.interpolation, self._size)

    def resize_into(self, destination: PixelArray, pixels: PixelArray, full: Full = None) -> None:
        if not self._is_done(destination, pixels, full, None):
            destination[...] = self._other().resize(pixels, full)

    def resize_window(self, pixels: PixelArray, placement: Placement, full: Full) -> PixelArray:
        shape = *placement.window, pixels.shape[2]
        if self._window.shape != shape:
            self._window = np.empty(shape, np.uint8)
        if self._is_done(self._window, pixels, full, placement):
            return self._window
        return self._other().resize_window(pixels, placement, full)


#: The product's own; the benchmark suite adds one.
RESIZERS: dict[str, type[Resizer]] = {"pil": _Pillow, "torch": _Torch, "native": _Native}
