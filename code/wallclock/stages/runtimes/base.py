"""What a runtime is asked for, and what it is once built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Request:
    """One network, one batch, and how to run it.

    Attributes:
        network: the network, FP32, in host memory, in evaluation mode. A builder may change it.
        weights_digest: sha256 of its parameters.
        images: the batch, float32 (n, 3, h, w), normalized.
        dtype: fp32, fp16, bf16 or int8.
        device: cpu or cuda.
        cache: where exported graphs are kept from one process to the next.
        scratch: where a compiler may put what nobody shall reuse.
        opset: of exported graphs.
        threads: intra-op threads on a CPU.
    """

    network: Any
    weights_digest: str
    images: Floats
    dtype: str
    device: str
    cache: Path
    scratch: Path
    opset: int
    threads: int


def _nothing() -> None:
    """Nothing is queued on a CPU."""


def synchronizer(device: str) -> Callable[[], object]:
    """What waits for the device."""
    if device != "cuda":
        return _nothing
    import torch

    return torch.cuda.synchronize


@dataclass(frozen=True)
class Runtime:
    """A batch on the device and what runs it.

    Attributes:
        run: takes the batch through the network once; on a GPU it may return before the device is done.
        vectors: the vectors of the last run, float32 (n, dim), in host memory.
        provider: what really runs it, as read back from the library.
        synchronize: waits for the device.
        compile_s: seconds of compilation, capture or session creation; None where there is none.
        values: anything else worth a record, with the unit in the name.
    """

    run: Callable[[], object]
    vectors: Callable[[], Floats]
    provider: str
    synchronize: Callable[[], object] = _nothing
    compile_s: float | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


Builder: TypeAlias = Callable[[Request], Runtime]
