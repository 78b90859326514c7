"""The arrays that stages exchange, and memory of others as an array.

Importing this does not import numpy.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: A uint8 RGB image, shape (height, width, 3). Its pixels are 3 bytes apart; or 4, where they lie
#: in another library's memory; or 1, of a grey image whose channels are one.
PixelArray: TypeAlias = "npt.NDArray[np.uint8]"

#: A float32 image, shape (3, height, width), contiguous.
FloatArray: TypeAlias = "npt.NDArray[np.float32]"

#: The float32 vectors of n images, shape (n, dim).
Vectors: TypeAlias = "npt.NDArray[np.float32]"


class _Memory:
    """What numpy makes an array of; `owner` has the memory, and lives as long as the array."""

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__, self.owner = interface, owner


def at_address(address: int, shape: tuple[int, ...], owner: Any) -> PixelArray:
    """The bytes at an address, which `owner` keeps there, as a read-only array."""
    import numpy as np

    interface = {"version": 3, "typestr": "|u1", "data": (address, True), "shape": shape}
    return np.asarray(_Memory(interface, owner))


def as_array(image: Any) -> PixelArray:
    """The pixels of Pillow's image, (h, w, c), also of one channel."""
    import numpy as np

    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[..., None]


def as_stored(pixels: PixelArray) -> PixelArray:
    """The same pixels as torch takes them: writeable; 4 channels where they are 4 bytes apart."""
    import numpy as np

    if pixels.strides[2] != 1:
        return np.array(pixels, order="C")
    is_padded = _is_padded(pixels)
    if pixels.flags.writeable and not is_padded:
        return pixels
    interface = dict(pixels.__array_interface__)
    interface["data"] = interface["data"][0], False  # torch warns of what is read-only
    if is_padded:
        interface["shape"] = *pixels.shape[:2], 4
    return np.asarray(_Memory(interface, pixels))


def copied(pixels: PixelArray) -> PixelArray:
    """A new array of the same pixels, contiguous."""
    import numpy as np

    if not _is_padded(pixels):
        return np.array(pixels, order="C")
    made = np.empty(pixels.shape, np.uint8)
    for channel in range(3):  # numpy copies three bytes at a time four times as slowly
        made[..., channel] = pixels[..., channel]
    return made


def _is_padded(pixels: PixelArray) -> bool:
    return pixels.shape[2] == 3 and pixels.strides[1:] == (4, 1)
