"""When a GPU's events happened, on the host's clock."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: An older anchor is replaced: two clocks that run 100 ppm apart part by 2 µs meanwhile.
_FRESH_NS = 20_000_000
#: An anchor that is less precise is tried again, so many times in all.
_PRECISE_NS, _TRIES = 8_000, 4


@dataclass(frozen=True)
class Anchor:
    """An event and the host's time of it, in ns, which is right to `error_ns`."""

    event: Any
    host_ns: int
    error_ns: int


class EventClock:
    """Places events on the host's clock, to 10 µs however long a job runs.

    CUDA gives the time between two events as a float32 of milliseconds: an hour is rounded to a
    quarter of a millisecond. And a device's clock drifts from the host's, by tens of microseconds a
    second. Each event is therefore placed between recent anchors. An anchor is an event that the
    host waited for: alone in a stream of its own, and polled, as a thread that sleeps wakes late.

    Args:
        cuda: `torch.cuda`.
        clock: the host's, in ns.

    Attributes:
        error_ns: the largest error of an anchor so far.
    """

    def __init__(self, cuda: Any, clock: Callable[[], int]) -> None:
        self._cuda, self._clock = cuda, clock
        self._stream = cuda.Stream()
        self.error_ns = 0
        self._latest = self._new_anchor()

    def anchor(self) -> Anchor:
        """The latest anchor, which is made anew once it is old. Waits for microseconds."""
        if self._clock() - self._latest.host_ns > _FRESH_NS:
            self._latest = self._new_anchor()
        return self._latest

    def host_ns(self, event: Any, before: Anchor) -> int:
        """The host's time of an event that was reached, in ns.

        Args:
            event: made with `enable_timing`; the latest anchor is not much older than it.
            before: an anchor from before the event was recorded.
        """
        latest = self._latest
        since = _ns_between(before.event, event)
        between = _ns_between(before.event, latest.event)
        if since >= between:
            return latest.host_ns + round(since - between)
        # How fast the two clocks run meanwhile, the two anchors tell.
        return before.host_ns + round(since / between * (latest.host_ns - before.host_ns))

    def _new_anchor(self) -> Anchor:
        made = self._try()
        for _ in range(_TRIES - 1):
            if made.error_ns <= _PRECISE_NS:
                break
            # Something took the core from this thread between the record and the end of the wait.
            made = min(made, self._try(), key=lambda anchor: anchor.error_ns)
        self.error_ns = max(self.error_ns, made.error_ns)
        return made

    def _try(self) -> Anchor:
        event = self._cuda.Event(enable_timing=True)
        began = self._clock()
        event.record(self._stream)
        event.synchronize()
        half_ns = (self._clock() - began) // 2
        return Anchor(event, began + half_ns, half_ns)


def _ns_between(first: Any, second: Any) -> float:
    return 1e6 * float(first.elapsed_time(second))
