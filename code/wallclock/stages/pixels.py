"""The arrays that stages exchange; importing their types does not import numpy."""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: A uint8 RGB image, shape (height, width, 3), contiguous.
PixelArray: TypeAlias = "npt.NDArray[np.uint8]"

#: A float32 image, shape (3, height, width), contiguous.
FloatArray: TypeAlias = "npt.NDArray[np.float32]"

#: The float32 vectors of n images, shape (n, dim).
Vectors: TypeAlias = "npt.NDArray[np.float32]"
