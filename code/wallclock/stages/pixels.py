"""The type that decode, resize and normalize exchange; importing it does not import numpy."""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: A uint8 RGB image, shape (height, width, 3), contiguous.
Pixels: TypeAlias = "npt.NDArray[np.uint8]"
