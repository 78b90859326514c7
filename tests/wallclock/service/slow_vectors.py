"""The service's own module, as slow as a test says."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from wallclock.service.modules import Embedding


class SlowVectors(Embedding):
    def __init__(self, model: str = "", runtime: str = "auto", step_s: float = 0.0) -> None:
        super().__init__(model, device="cpu", runtime=runtime)
        assert self._embedder is not None
        assert self._embedder.labels["runtime"] == runtime
        self._step_s = step_s

    def process(self, batch: np.ndarray) -> Sequence[Any]:
        time.sleep(self._step_s)
        return super().process(batch)
