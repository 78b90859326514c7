"""What passes between decode, resize and normalize."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

#: A uint8 RGB picture, shape (height, width, 3), contiguous.
Pixels: TypeAlias = npt.NDArray[np.uint8]
