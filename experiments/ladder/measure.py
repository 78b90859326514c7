"""Protocols `ladder` and `redelivery`: requests from a queue to accepted callbacks, by one rung.

Around the service's process are the test bed's servers (`bed.py`).

`ladder`. Closed (`params.rate` 0): the queue holds all requests before the service starts. Open:
Poisson arrivals at that rate, whatever the service does (MLPerf Inference's scenario Server). Then
a request's latency starts when it was due, not when it was sent, and ends when its callback is
accepted, by the receiver's clock, which is that of this machine. Closed, the first `params.warm_up`
accepted callbacks do not count; open, as many requests come first and are answered before the
others arrive. A pass counts only if every request was accepted exactly once and the queue is empty
after it.

`redelivery`: a backlog larger than a rung can answer within the visibility timeout. The queue holds
`params.n` requests when the service starts, more than it answers in `params.visibility_s`. A
message that a module has pulled and not deleted by then is delivered again, and a deletion by the
earlier delivery's handle deletes nothing. So a module that pulls without a bound answers requests
whose messages stay in the queue: R. Moarref, "Simple Ways to Save Big in Computer Vision Inference"
(GumGum, 2020), "hopelessly processes the same message over and over". `params.queue_size`: of each
queue of rungs 2 to 4; 0: no bound. A pass ends when every request is completed, or after
`params.seconds`. No message is moved to the dead-letter queue, which on AWS would end the loop by
giving requests up.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from experiments.ladder import bed
from experiments.ladder.bed import POLL_S, START_S, STOP_S, STUCK_S, Servers, Service
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, Progress
from harness.spec import Cell
from wallclock.machine import usable_cores


def ladder(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """One pass of `params.n` requests after the warm-up.

    Samples: `wall`, between the first and the last callback that count, of `n_loaded` intervals;
    `latency` (open), of each request. Values: `cpu_s` of the service's processes meanwhile,
    `peak_memory_mib` of them together, shared pages in each; of a GPU `gpu_util_mean` meanwhile, in
    percent, and `gpu_used_gib`, the most; `bed_cpu_s`, of the servers after their start;
    `redeliveries`; `wasted`, downloads beyond one a request; `image_bytes` downloaded; `late_s`,
    the 99th percentile of how late requests were sent; `arrived_per_s`, as many as were due in a
    second. Raises RuntimeError: a request was lost or answered twice, or the service ended or got
    stuck.
    """
    params = cell.params
    manifest = protocol.open_corpus(cell, "jpeg")
    values = protocol.set_conditions(cell, manifest, uses_torch=False)
    with bed.running(cell, work, manifest) as (servers, service):
        values |= _run(params, servers, service, progress)
        n_services = len(service.processes)
    values |= {"cores": usable_cores(), "rung": params["rung"], "services": n_services}
    samples = {"wall": [round(1e9 * values.pop("wall_s"))]}
    latency = [round(1e9 * s) for s in values.pop("latency_s")]
    if latency:
        samples["latency"] = latency
    return Measurement(samples, values)


def arrivals(rate: float, n: int, seed: int) -> list[float]:
    """Seconds from the start to each of n Poisson arrivals at `rate` per second."""
    draw = random.Random(seed)
    return list(accumulate(draw.expovariate(rate) for _ in range(n)))


def _run(
    params: Mapping[str, Any], servers: Servers, service: Service, progress: Progress
) -> dict[str, Any]:
    """Send the requests, wait for their callbacks; the values of the pass."""
    n, warm_up = params["n"], params["warm_up"]
    rate = params["rate"]
    sent = servers.send(range(warm_up))
    if not rate:
        sent += servers.send(range(n))
        accepted = _wait(servers, service, warm_up + n, progress)
        return _values(servers, service, sent, accepted, sorted(accepted.values())[warm_up - 1 :])
    _wait(servers, service, warm_up, progress)
    due = [time.time() + s for s in arrivals(rate, n, params["seed"])]
    late: list[float] = []
    sender = threading.Thread(target=_send, args=(servers, due, sent, late), daemon=True)
    sender.start()
    accepted = _wait(servers, service, warm_up + n, progress)
    sender.join()
    times = [accepted[name] for name in sent[warm_up:] if name in accepted]
    values = _values(servers, service, sent, accepted, sorted(times))
    values["latency_s"] = [at - moment for at, moment in zip(times, due, strict=True)]
    values["late_s"] = float(np.quantile(late, 0.99))
    values["arrived_per_s"] = (n - 1) / (due[-1] - due[0])
    return values


def _send(servers: Servers, due: Sequence[float], sent: list[str], late: list[float]) -> None:
    """Send each request when it is due, those that have become due meanwhile in one call."""
    at = 0
    while at < len(due):
        time.sleep(max(0.0, due[at] - time.time()))
        now = time.time()
        end = at + 1
        while end < min(len(due), at + 10) and due[end] <= now:
            end += 1
        sent += servers.send(range(at, end))
        late += [time.time() - moment for moment in due[at:end]]
        at = end


def _wait(servers: Servers, service: Service, n: int, progress: Progress) -> dict[str, float]:
    """Wait for n accepted callbacks; when each id was accepted."""
    n_accepted = 0
    moved = time.monotonic()
    while True:
        before = n_accepted
        n_accepted = servers.counts("callbacks").get("accepted", 0)
        service.sample()
        progress(n_accepted)
        if n_accepted >= n:
            return servers.accepted()
        if n_accepted > before:
            moved = time.monotonic()
        limit_s = STUCK_S if n_accepted else START_S
        if time.monotonic() - moved > limit_s:
            raise RuntimeError(f"{n_accepted} of {n} callbacks after {limit_s:g} s without one")
        time.sleep(POLL_S)


def _values(
    servers: Servers,
    service: Service,
    sent: Sequence[str],
    accepted: Mapping[str, float],
    times: Sequence[float],
) -> dict[str, Any]:
    """What the servers counted, and what the service used between the first time and the last."""
    deadline = time.monotonic() + STOP_S
    left = servers.left()
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        left = servers.left()
    counts = Counter(servers.counts("callbacks"))
    check(set(sent), set(accepted), counts, left)
    images = servers.counts("images")
    delivered = servers.counts("sqs")["delivered"]
    return {
        "n_loaded": len(times) - 1,
        "wall_s": times[-1] - times[0],
        "latency_s": [],
        **service.used_between(times[0], times[-1]),
        "redeliveries": delivered - len(sent),
        "wasted": images["images"] - len(sent),
        "image_bytes": images["bytes"],
        "n_requests": len(sent),
        "bed_cpu_s": servers.cpu_s(),
    }


def check(sent: set[str], accepted: set[str], counts: Mapping[str, int], left: int) -> None:
    """Raise RuntimeError unless each id was accepted once and the queue is empty."""
    counted = {
        "lost": len(sent - accepted),
        "unknown": len(accepted - sent),
        "duplicates": counts["duplicates"],
        "conflicts": counts["conflicts"],
        "left in the queue": left,
    }
    faults = [f"{count} {name}" for name, count in counted.items() if count]
    if faults:
        raise RuntimeError(f"of {len(sent)} requests {', '.join(faults)}")


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
    values |= {"completed": completed[-1], "completed_late": count_late(times, completed)}
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


def count_late(times: list[float], completed: list[int]) -> int:
    """How many of those completed by each time were so in the second half of the time."""
    half = times[-1] / 2
    by_half = [done for at, done in zip(times, completed, strict=True) if at <= half]
    return completed[-1] - max(by_half)
