"""A receiver of callbacks that can fail and stall, and records what it accepted, by key."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from harness.testbed.faults import Faults, FaultyServer, reset


@dataclass(frozen=True)
class Accepted:
    """The first callback with a key: when it was accepted (Unix seconds), and its body."""

    at_s: float
    body: bytes


class CallbackReceiver(FaultyServer):
    """Accepts POST with the header `Idempotency-Key`.

    Counts: `accepted`, one per key; `duplicates`, more callbacks with an accepted key, answered
    like the first; of these `conflicts`, whose body is another. Without a key: 400.
    """

    def __init__(self, clock: Callable[[], float] = time.time, **options: Any) -> None:
        super().__init__(**options)
        self._clock = clock
        self.accepted = dict[str, Accepted]()

    def stats(self) -> dict[str, Any]:
        """The counts, and when each key was accepted."""
        times = {key: accepted.at_s for key, accepted in self.accepted.items()}
        return dict(self.counts) | {"accepted_at_s": times}

    async def answer(self, request: web.BaseRequest, faults: Faults) -> web.StreamResponse:
        """Accept a callback."""
        key, body = request.headers.get("Idempotency-Key"), await request.read()
        if request.method != "POST" or not key:
            return web.Response(status=400)
        if first := self.accepted.get(key):
            self.counts["duplicates"] += 1
            self.counts["conflicts"] += first.body != body
        else:
            self.accepted[key] = Accepted(self._clock(), body)
            self.counts["accepted"] += 1
        return reset(request) if self.happens("cuts", faults.cut_rate) else web.Response()
