"""The service's module on the mock machine of `ladder.parts`: rung 5 of the ladder.

Images are inspected, decoded and resized as by the service's own module. A preprocessing lasts as
long as `preprocess_ms` says at least, a batch as long as the device is busy; what is left of either
is slept, so that this machine's cores do not limit a larger one's.
"""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.ladder.rungs import sleep_until
from wallclock.service import Pixels, Request


class MockMachine(Pixels):
    """No network: every result is []. Times in milliseconds."""

    def __init__(
        self, preprocess_ms: float = 0.0, step_ms: float = 0.0, step_ms_per_image: float = 0.0
    ) -> None:
        super().__init__()
        self._preprocess_s = preprocess_ms / 1e3
        self._step_s, self._step_s_per_image = step_ms / 1e3, step_ms_per_image / 1e3

    def preprocess(self, image: bytes, request: Request) -> npt.NDArray[np.uint8]:
        """Uint8 (px, px, 3)."""
        began = perf_counter()
        pixels = super().preprocess(image, request)
        sleep_until(began + self._preprocess_s)
        return pixels

    def process(self, batch: npt.NDArray[np.uint8]) -> Sequence[Any]:
        """The results of a batch, when the device would have them."""
        began = perf_counter()
        sleep_until(began + self._step_s + self._step_s_per_image * len(batch))
        return [[]] * len(batch)
