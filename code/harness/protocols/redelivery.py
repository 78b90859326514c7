"""Protocol `redelivery`: a backlog larger than a rung can answer within the visibility timeout.

The queue holds `params.n` requests when the service starts, more than it answers in
`params.visibility_s`. A message that a module has pulled and not deleted by then is delivered
again, and a deletion by the earlier delivery's handle deletes nothing. So a module that pulls
without a bound answers requests whose messages stay in the queue: R. Moarref, "Simple Ways to Save
Big in Computer Vision Inference" (GumGum, 2020), "hopelessly processes the same message over and
over". `params.queue_size`: of each queue of rungs 2 to 4; 0: no bound.

A pass ends when every request is completed, or after `params.seconds`. No message is moved to the
dead-letter queue, which on AWS would end the loop by giving requests up.
"""

import time
from collections import Counter
from pathlib import Path
from typing import Any

from harness.ladder import bed
from harness.ladder.bed import POLL_S, START_S, Servers, Service
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, Progress
from harness.spec import Cell
from wallclock.machine import usable_cores

#: SQS's most.
_MAX_RECEIVES = 1000


def redelivery(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """One pass.

    Samples: `wall`, from the first delivery seen to the end. Values: `n_requests`; `delivered`,
    deliveries of messages; `completed`, messages deleted, and `completed_late`, those of the second
    half of the pass; `accepted`, requests called back, and `repeated`, callbacks beyond the first
    of a request; `peak_memory_mib`. Raises RuntimeError: the service ended, or pulled nothing.
    """
    params = cell.params
    manifest = protocol.open_corpus(cell, "jpeg")
    values = protocol.set_conditions(cell, manifest, uses_torch=False)
    queue = {"visibility_s": params["visibility_s"], "max_receives": _MAX_RECEIVES}
    with bed.running(cell, work, manifest, **queue) as (servers, service):
        servers.send(range(params["n"]))
        times, completed = _watch(params["n"], params["seconds"], servers, service, progress)
        values |= _counts(params["n"], servers)
    values |= {"cores": usable_cores(), "rung": params["rung"]}
    values["peak_memory_mib"] = service.peak_mib
    values |= {"completed": completed[-1], "completed_late": late(times, completed)}
    return Measurement({"wall": [round(1e9 * times[-1])]}, values)


def _watch(
    n: int, seconds: float, servers: Servers, service: Service, progress: Progress
) -> tuple[list[float], list[int]]:
    """Seconds since the first delivery and requests completed by then, until the end."""
    started = time.monotonic()
    first: float | None = None
    times, completed = [], []
    while True:
        service.sample()
        now = time.monotonic()
        if first is None and servers.counts("sqs")["delivered"]:
            first = now
        if first is not None:
            times.append(now - first)
            completed.append(n - servers.left())
            progress(completed[-1])
            if completed[-1] == n or times[-1] >= seconds:
                return times, completed
        elif now - started > START_S:
            raise RuntimeError(f"the service pulled nothing in {START_S:g} s")
        time.sleep(POLL_S)


def _counts(n: int, servers: Servers) -> dict[str, Any]:
    counts = Counter(servers.counts("callbacks"))
    return {
        "n_requests": n,
        "delivered": servers.counts("sqs")["delivered"],
        "accepted": counts["accepted"],
        "repeated": counts["duplicates"],
    }


def late(times: list[float], completed: list[int]) -> int:
    """How many of those completed by each time were so in the second half of the time."""
    half = times[-1] / 2
    by_half = [done for at, done in zip(times, completed, strict=True) if at <= half]
    return completed[-1] - max(by_half)
