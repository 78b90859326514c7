"""Modules whose work takes as long as a test says; a result is the image's first byte."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wallclock.errors import ImageError
from wallclock.service.interface import Module, Request

POISON = 66


class Toy(Module):
    def __init__(self, step_s: float = 0.0) -> None:
        self._step_s = step_s

    def preprocess(self, image: bytes, request: Request) -> np.ndarray:
        if len(image) < 2:
            raise ImageError("decode", "truncated")
        return np.frombuffer(image, np.uint8, 1)

    def process(self, batch: np.ndarray) -> Sequence[Any]:
        time.sleep(self._step_s)
        if POISON in batch:
            raise ValueError(f"{POISON} in a batch")
        return list(batch)


class Adding(Toy):
    """Adds what a message's parameters say."""

    def process(
        self, batch: np.ndarray, parameters: Sequence[Mapping[str, Any]] = ()
    ) -> Sequence[Any]:
        rows = super().process(batch)
        return [int(row[0]) + of["add"] for row, of in zip(rows, parameters, strict=True)]
