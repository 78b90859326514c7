"""Stage `assemble`: images into one batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def stack(images: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    """Copy n arrays of shape (3, h, w) into one of shape (n, 3, h, w)."""
    return np.stack(images)
