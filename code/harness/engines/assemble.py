"""Stage `assemble`: images into one batch."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def stack_shared(images: Sequence[npt.NDArray[Any]]) -> Any:
    """Copy n arrays of one shape, float32 or uint8, into a tensor that other processes can map.

    Shape (3, h, w) or (h, w, 3), n in front. In this process's own memory `numpy.stack` does. As
    torch's `default_collate` in a worker: the main process maps the batch where it lies, and the
    transfer copies nothing.
    """
    batch = empty_shared((len(images), *images[0].shape), images[0].dtype.name)
    np.stack(images, out=batch.numpy())
    return batch


def empty_shared(shape: tuple[int, ...], dtype: str) -> Any:
    """Memory for one batch that other processes can map; of its values nothing is known."""
    import torch

    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    storage = torch.UntypedStorage._new_shared(n_bytes)  # type: ignore[no-untyped-call]
    return torch.empty(0, dtype=getattr(torch, dtype)).set_(storage).reshape(shape)
