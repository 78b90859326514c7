"""Stages `h2d` and `d2h`: a batch to the device, vectors back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock import machine
from wallclock.errors import check_name

_DEVICES = ("cpu", "cuda", "null")


@dataclass(frozen=True)
class Transfer:
    """How a batch reaches the device and its vectors come back, as float32 (n, dim).

    `h2d` takes an array or a tensor in host memory. `synchronize` waits for the device; None where
    nothing is queued.
    """

    h2d: Callable[[Any], Any]
    d2h: Callable[[Any], npt.NDArray[np.float32]]
    synchronize: Callable[[], object] | None


def make(device: str) -> Transfer:
    """Return the transfers of `device`: cpu, cuda, or null (arrays pass unchanged, without torch).

    Raises `Unavailable` where the device is missing.
    """
    check_name(device, _DEVICES, "device")
    if device == "null":
        return Transfer(h2d=lambda batch: batch, d2h=np.asarray, synchronize=None)
    import torch

    if device == "cuda":
        machine.require_cuda()
    target = torch.device(device)

    def h2d(batch: Any) -> Any:
        # From pinned memory the copy is queued and returns at once; from pageable memory it waits.
        return torch.as_tensor(batch).to(target, non_blocking=True)

    def d2h(vectors: Any) -> npt.NDArray[np.float32]:
        host: npt.NDArray[np.float32] = vectors.float().cpu().numpy()
        return host

    return Transfer(h2d, d2h, torch.cuda.synchronize if device == "cuda" else None)
