"""How long an accelerator was busy: pairs of events around passes, asked for later."""

from collections import deque
from collections.abc import Iterable
from typing import Any

from . import layout
from .tracer import Tracer

Pair = tuple[Any, Any]


class DeviceClock:
    """Adds up the time between events on a stream, and never waits for one.

    `cuda`: a module like `torch.cuda`; by default that, from the first pass on a GPU on.
    """

    def __init__(self, tracer: Tracer, cuda: Any = None) -> None:
        self._tracer, self._cuda = tracer, cuda
        self._unused: list[Pair] = []
        self._pending: deque[Pair] = deque()
        self._is_named = False

    def begin(self, arguments: Iterable[Any]) -> Pair | None:
        """Record the start of a pass; None where its first tensor is not on a GPU."""
        try:
            return self._begin(arguments)
        except Exception as error:  # noqa: BLE001 - the pass itself must run
            self._tracer.complain("the device", error)
            return None

    def _begin(self, arguments: Iterable[Any]) -> Pair | None:
        tensor = next((value for value in arguments if hasattr(value, "is_cuda")), None)
        if tensor is None or not tensor.is_cuda:
            return None
        cuda = self._cuda
        if cuda is None:
            import torch

            cuda = self._cuda = torch.cuda
        if cuda.is_current_stream_capturing():  # the events would become part of the graph
            return None
        self._name(cuda, tensor)
        try:
            pair = self._unused.pop()
        except IndexError:
            pair = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        pair[0].record()
        return pair

    def end(self, pair: Pair | None) -> None:
        """Record the end; add up the earlier passes that the device has done."""
        if pair is not None:
            try:
                pair[1].record()
                self._pending.append(pair)
                self.collect()
            except Exception as error:  # noqa: BLE001 - as above
                self._tracer.complain("the device", error)

    def collect(self) -> None:
        """Add up what is done, in the order of the passes."""
        words = self._tracer.counters.words
        while self._pending:
            pair = self._pending.popleft()
            if not pair[1].query():
                self._pending.appendleft(pair)
                return
            words[layout.DEVICE_BUSY_NS] += round(1e6 * pair[0].elapsed_time(pair[1]))
            self._unused.append(pair)

    def _name(self, cuda: Any, tensor: Any) -> None:
        if not self._is_named:
            self._is_named = True
            self._tracer.counters.words[layout.HAS_DEVICE] = 1
            self._tracer.write(layout.DEVICE, str(cuda.get_device_name(tensor.device)))
            self._tracer.at_end.append(self.collect)
