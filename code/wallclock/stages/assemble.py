"""Stage `assemble`: images into one batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch


def stack(images: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Copy n arrays of one shape, (3, h, w) or (h, w, 3), into one with n in front."""
    return np.stack(images)


def stack_shared(images: Sequence[npt.NDArray[Any]]) -> torch.Tensor:
    """The same, float32 or uint8, into memory that other processes can map.

    This is what torch's `default_collate` does in a DataLoader worker: the batch lies where the main process
    will find it, where any other would be copied there on its way.
    """
    import torch

    shape, dtype = (len(images), *images[0].shape), images[0].dtype
    storage = torch.UntypedStorage._new_shared(math.prod(shape) * dtype.itemsize)  # type: ignore[no-untyped-call]
    batch = torch.empty(0, dtype=getattr(torch, dtype.name)).set_(storage).reshape(shape)
    np.stack(images, out=batch.numpy())
    return batch
