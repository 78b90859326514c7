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

    torch's `default_collate` does this in a DataLoader worker: the main process maps the batch
    where it lies, and the transfer copies nothing.
    """
    batch = empty_shared((len(images), *images[0].shape), images[0].dtype.name)
    np.stack(images, out=batch.numpy())
    return batch


def empty_shared(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    """Memory for one batch that other processes can map; of its values nothing is known."""
    import torch

    torch_dtype: torch.dtype = getattr(torch, dtype)
    n_bytes = math.prod(shape) * torch_dtype.itemsize
    storage = torch.UntypedStorage._new_shared(n_bytes)  # type: ignore[no-untyped-call]
    return torch.empty(0, dtype=torch_dtype).set_(storage).reshape(shape)
