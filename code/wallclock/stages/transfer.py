"""Stages `h2d` and `d2h`: a batch to the device, vectors back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock import machine
from wallclock.errors import check_name


@dataclass(frozen=True)
class Transfer:
    """How a batch reaches the device and vectors (n, dim) come back; `synchronize` waits for it."""

    h2d: Callable[[Any], Any]
    d2h: Callable[[Any], npt.NDArray[np.float32]]
    synchronize: Callable[[], object] | None


def make(device: str) -> Transfer:
    """Of cpu, cuda, or null (arrays pass unchanged, without torch). Raises `Unavailable`."""
    check_name(device, ("cpu", "cuda", "null"), "device")
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


class StreamCopy:
    """Copies batches to a GPU in a stream of its own, while other streams compute.

    `h2d` queues the copy where the batch is in page-locked memory; `convert`: what is done with it
    on the device, in the same stream.
    """

    def __init__(self, h2d: Callable[[Any], Any], convert: Callable[[Any], Any]) -> None:
        import torch

        self._cuda: Any = torch.cuda
        self._stream = self._cuda.Stream()
        self._h2d, self._convert = h2d, convert

    def __call__(self, images: Any) -> tuple[Any, Any]:
        """Queue a batch.

        Returns the result, which the caller's current stream may use from now on; and an event:
        once it is reached, the memory of `images` may be overwritten.
        """
        cuda = self._cuda
        copied, converted = cuda.Event(blocking=True), cuda.Event()
        with cuda.stream(self._stream):
            on_device = self._h2d(images)
            copied.record()
            result = self._convert(on_device)
            converted.record()
        current = cuda.current_stream()
        current.wait_event(converted)
        # The allocator must not reuse its memory while the other stream reads it.
        result.record_stream(current)
        return result, copied
