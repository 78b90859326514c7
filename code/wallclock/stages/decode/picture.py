"""Pixels that a user has in memory, in the place of a file: an array, or a Pillow image."""

import threading
from functools import cached_property
from typing import Any

from wallclock.errors import ImageError
from wallclock.orientation import UPRIGHT
from wallclock.stages.decode.decoder import MODES
from wallclock.stages.decode.pil import pixels_of, quiet, stated_orientation
from wallclock.stages.pixels import PixelArray

#: Locks of Pillow images that are decoded when they are first used.
_LOADING = [threading.Lock() for _ in range(61)]


class Picture:
    """Uint8 or uint16 (h, w) or (h, w, 2 to 4), or a Pillow image. Stands for the bytes of a file.

    Asked for what it is, it raises ImageError; or what Pillow raises of a file not decoded yet.
    """

    def __init__(self, given: Any) -> None:
        self._given = given

    def __call__(self) -> "Picture":
        """Itself, where a file would be read."""
        return self

    def size(self) -> tuple[int, int]:
        """Width and height."""
        opened = self._opened
        width, height = opened.shape[1::-1] if self._is_array else opened.size
        if not width * height:
            raise ImageError("decode", "an image without pixels")
        return width, height

    def orientation(self) -> int:
        """Of EXIF, 1 to 8. (A TIFF is upright, once Pillow has decoded it.)"""
        return UPRIGHT if self._is_array else stated_orientation(self._image())

    def pixels(self, mode: str) -> PixelArray:
        """Uint8 (h, w, c), read-only, c as `mode` of `decode.MODES` has it."""
        opened = self._opened
        if self._is_array and mode != "L" and MODES[mode] <= opened.shape[2]:
            pixels: PixelArray = opened[..., : MODES[mode]]
            pixels.flags.writeable = False  # it is the user's
            return pixels
        return pixels_of(self._image(), mode)

    @cached_property
    def _opened(self) -> Any:
        from PIL import Image

        return self._given if isinstance(self._given, Image.Image) else _of_array(self._given)

    @property
    def _is_array(self) -> bool:
        return hasattr(self._opened, "shape")

    def _image(self) -> Any:
        """Pillow's image, decoded."""
        from PIL import Image, ImageFile

        if self._is_array:
            return Image.fromarray(self._opened)
        if isinstance(self._opened, ImageFile.ImageFile):
            with quiet, _LOADING[id(self._opened) % len(_LOADING)]:  # it may come twice at a time
                self._opened.load()
        return self._opened


def _of_array(value: Any) -> Any:
    """Pillow's image, unless these are colours of 8 bits: an array whose pixels are contiguous."""
    import numpy as np
    from PIL import Image

    array = np.asarray(value)
    if array.dtype.kind == "u" and array.dtype.itemsize == 2:
        array = (array >> 8).astype(np.uint8)
    if array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] in (3, 4):
        is_plain = array.strides[1:] == (array.shape[2], 1) and array.strides[0] > 0
        return array if is_plain else np.ascontiguousarray(array)
    try:
        if array.ndim < 2:  # of which Pillow makes a column
            raise ValueError(array.ndim)
        return Image.fromarray(array)
    except (TypeError, ValueError) as error:
        fix = "give uint8 or uint16, (height, width) or with 2 to 4 channels last"
        raise ImageError("decode", f"an array of {array.dtype} {array.shape}: {fix}") from error
