"""How many messages may be held: GumGum's bound, with the rate that is measured.

Without one a service pulls messages that it cannot finish within their visibility timeout, and
"hopelessly processes the same message over and over" (R. Moarref, "Simple Ways to Save Big in
Computer Vision Inference", 2020). Here heartbeats extend what is held, so the bound is the second
line of defence: it also keeps messages free for other processes, and bounds the work that a kill
repeats.
"""

import time
from collections.abc import Callable

#: Buffers that a message goes through: to be downloaded, to be inferred, to be called back.
N_QUEUES = 3
_WINDOW_S = 1.0


def max_queue_size(visibility_s: float, requests_per_s: float) -> int:
    """The bound of each queue: visibility timeout × rate / number of queues."""
    return int(visibility_s * requests_per_s / N_QUEUES)


class Bound:
    """The number of messages that may be held; `least`: one batch and all connections."""

    def __init__(
        self,
        visibility_s: float,
        least: int,
        most: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._visibility_s = visibility_s
        self._least, self._most = least, most
        self._clock, self._since_s = clock, clock()
        self._n = 0
        #: Messages per second, mean of the last windows, each half as heavy as the next one.
        self.rate = 0.0

    def finished(self) -> None:
        """One message has left: its result was delivered, or it has failed."""
        self._n += 1
        span_s = self._clock() - self._since_s
        if span_s >= _WINDOW_S:
            rate = self._n / span_s
            self.rate = (self.rate + rate) / 2 if self.rate else rate
            self._n, self._since_s = 0, self._clock()

    def __call__(self) -> int:
        """Messages that may be held now."""
        bound = N_QUEUES * max_queue_size(self._visibility_s, self.rate)
        return min(max(bound, self._least), self._most)
