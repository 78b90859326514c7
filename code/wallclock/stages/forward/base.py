"""What a runtime is asked to run, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

#: A batch on the device to its vectors there.
Run: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True)
class Request:
    """A network and how to run it.

    Attributes:
        network: FP32, in host memory, in evaluation mode. A builder may change and move it.
        weights_digest: sha256 of its parameters.
        shape: (n, 3, h, w) of a batch.
        normalize: uint8 (n, h, w, 3) → float32 (n, 3, h, w), on the device; None: batches are
            normalized already.
        cache: where exported graphs are kept from one process to the next.
        opset: of exported graphs; 23 is the first with an operator for attention.
    """

    network: Any
    weights_digest: str
    shape: tuple[int, int, int, int]
    runtime: str
    dtype: str
    device: str
    compile: str
    normalize: Run | None
    cache: Path
    opset: int = 23


@dataclass(frozen=True)
class Network:
    """A network that is ready to run. All labels are read back from the object that runs.

    Attributes:
        run: a batch on the device (n, 3, h, w), or uint8 (n, h, w, 3) where it normalizes, to
            (n, dim) vectors there. On a GPU it may return before the device is done.
        weights_digest: sha256 of the parameters.
        runtime: pytorch, onnxruntime, tensorrt, or none for the mock model; `compile` likewise.
        provider: library, device and precision, or ONNX Runtime's providers.
        dtype: of the parameters or of the session.
        values: for the record: `compile_s`, seconds of compilation, capture or session creation
            (None where there is none); of an exported graph `export_s`, `operators`, `nodes`.
    """

    run: Run
    weights_digest: str
    runtime: str = "none"
    provider: str = "none"
    dtype: str = "none"
    compile: str = "none"
    values: Mapping[str, Any] = field(default_factory=lambda: {"compile_s": None})
