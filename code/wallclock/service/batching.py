"""When the next batch starts and how large it is: a policy without a clock or a queue.

"Raise the batch as long as throughput rises": sizes double while the measured step times give more
than 2 % more rows per second. The oldest row waits for others at most `max_wait_s`, and not at all
if no other is on its way.
"""

#: A larger batch has to be this much faster, in rows per second.
_GAIN = 1.02
#: Steps of one size, the shortest of which is its step time: the first may compile or warm up, and
#: what else runs on the machine only makes them longer.
_TRIALS = 3
#: Steps after which the next size is tried again: rows pile up behind a batch that is too small.
_STEPS_UNTIL_RETRIAL = 100


class BatchPolicy:
    """Chooses batch sizes from 1, 2, 4 … up to `batch_size`; a row waits up to `max_wait_s`."""

    def __init__(self, batch_size: int, max_wait_s: float) -> None:
        self.max_wait_s = max_wait_s
        self._sizes = [*(1 << i for i in range((batch_size - 1).bit_length())), batch_size]
        self._at, self._ceiling = 0, len(self._sizes)
        self._step_s: dict[int, float] = {}
        self._trials: list[float] = []
        self._n_steps = 0

    @property
    def size(self) -> int:
        """The size that is aimed at now."""
        return self._sizes[self._at]

    def take(self, waiting: int, waited_s: float, more: bool) -> int:
        """How many rows that wait, the oldest for `waited_s`, go now; 0: wait for `more`."""
        if waiting >= self.size:
            return self.size
        return 0 if more and waited_s < self.max_wait_s else waiting

    def observe(self, n: int, seconds: float) -> None:
        """A step of `n` rows took so long."""
        self._n_steps += 1
        if self._n_steps >= _STEPS_UNTIL_RETRIAL:
            self._n_steps, self._ceiling = 0, len(self._sizes)
        if n != self.size:
            return
        self._trials.append(max(seconds, 1e-9))
        if len(self._trials) == _TRIALS:
            self._step_s[self._at] = min(self._trials)
            self._move()
            self._trials.clear()

    def _move(self) -> None:
        """Back if the last increase did not pay; up if the next one is not known not to."""
        below = self._at - 1
        if self._at and self._rate(self._at) <= _GAIN * self._rate(below):
            self._ceiling, self._at = self._at, below
        elif self._at + 1 < self._ceiling:
            self._at += 1

    def _rate(self, index: int) -> float:
        return self._sizes[index] / self._step_s[index]
