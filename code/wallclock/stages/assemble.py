"""Stage `assemble`: images into one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def stack(images: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Copy n arrays of one shape, (3, h, w) or (h, w, 3), into one with n in front."""
    return np.stack(images)
