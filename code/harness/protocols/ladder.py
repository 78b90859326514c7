"""Protocol `ladder`: requests from a queue to accepted callbacks, by one rung in its own process.

Queue, image store and callback receiver are the test bed's, each a process on loopback; the latter
two wait before every answer as long as `params.download_ms` and `params.callback_ms` say. Closed
(`params.rate` 0): the queue holds all requests before the service starts. Open: Poisson arrivals at
that rate, whatever the service does (MLPerf Inference's scenario Server). Then a request's latency
starts when it was due, not when it was sent, and ends when its callback is accepted, by the
receiver's clock, which is that of this machine.

Closed, the first `params.warm_up` accepted callbacks do not count; open, as many requests come
first and are answered before the others arrive. A pass counts only if every request was accepted
exactly once and the queue is empty after it.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from harness import provenance
from harness.ladder import rungs
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, Progress
from harness.spec import Cell
from harness.testbed import serving
from harness.testbed.faults import CONTROL
from wallclock.machine import ProcessTree, usable_cores

#: What the protocol times (`harness.protocols.registry`): rung 5 is the service, logging included.
TIMED = {
    "ladder": (
        "harness.ladder",
        "harness.predict.ladder",
        "harness.testbed",
        "wallclock.check",
        "wallclock.fetch",
        "wallclock.infer",
        "wallclock.jpeg",
        "wallclock.loader",
        "wallclock.metrics",
        "wallclock.service",
        "wallclock.stages",
    )
}

#: S3's queues of 300 hold 300 × 3 / 9 = 100 s of rung 2's messages, by its own formula.
_VISIBILITY_S = 120
_MAX_RECEIVES = 5
_POLL_S = 0.2
#: Without a further callback for so long, the service is stuck.
_STUCK_S = 60.0
_STOP_S = 15.0


def ladder(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """One pass of `params.n` requests after the warm-up.

    Samples: `wall`, between the first and the last callback that count, of `n_loaded` intervals;
    `latency` (open), of each request. Values: `cpu_s` of the service's processes meanwhile,
    `peak_memory_mib` of them together, shared pages in each; `bed_cpu_s`, of the servers after
    their start; `redeliveries`; `wasted`, downloads beyond one a request; `image_bytes` downloaded;
    `late_s`, the 99th percentile of how late requests were sent; `arrived_per_s`, as many as were
    due in a second. Raises RuntimeError: a request was lost or answered twice, or the service ended
    or got stuck.
    """
    params = cell.params
    manifest = protocol.open_corpus(cell, "jpeg")
    values = protocol.set_conditions(cell, manifest, uses_torch=False)
    images = work / "images"
    images.mkdir()
    for i, item in enumerate(manifest.valid):
        (images / f"{i}.jpg").symlink_to((manifest.root / item.path).resolve())
    with ExitStack() as stack:
        arguments = {"sqs": (), "callbacks": (), "images": ("--folder", str(images))}
        started = {
            name: stack.enter_context(serving.process(name, *words))
            for name, words in arguments.items()
        }
        servers = Servers(started, len(manifest.valid))
        servers.delay(params["download_ms"] / 1e3, params["callback_ms"] / 1e3)
        n_services = params["services"] or usable_cores()
        outputs = [work / f"output-{number}" for number in range(n_services)]
        command = _command(cell, servers, n_services)
        service = Service([stack.enter_context(_started(command, log)) for log in outputs])
        values |= _run(params, servers, service, progress)
    values |= {"cores": usable_cores(), "rung": params["rung"], "services": n_services}
    samples = {"wall": [round(1e9 * values.pop("wall_s"))]}
    latency = [round(1e9 * s) for s in values.pop("latency_s")]
    if latency:
        samples["latency"] = latency
    return Measurement(samples, values)


def arrivals(rate: float, n: int, seed: int) -> list[float]:
    """Seconds from the start to each of n Poisson arrivals at `rate` a second."""
    draw = random.Random(seed)
    return list(accumulate(draw.expovariate(rate) for _ in range(n)))


class Servers:
    """The three servers around a service, and a queue: name → its URL and process."""

    def __init__(self, started: Mapping[str, tuple[str, Any]], n_images: int) -> None:
        import urllib3

        self._http = urllib3.PoolManager()
        self._urls = {name: url for name, (url, _) in started.items()}
        self._n_images = n_images
        self._processes = [psutil.Process(child.pid) for _, child in started.values()]
        self._failed_url = self._queue("failed", {})
        arn = self._attributes(self._failed_url, "QueueArn")["QueueArn"]
        policy = {"deadLetterTargetArn": arn, "maxReceiveCount": _MAX_RECEIVES}
        attributes = {"VisibilityTimeout": str(_VISIBILITY_S), "RedrivePolicy": json.dumps(policy)}
        self.queue_url = self._queue("requests", attributes)
        self._before_s = 0.0
        self._before_s = self.cpu_s()

    def delay(self, download_s: float, callback_s: float) -> None:
        """How long image store and callback receiver wait before they answer."""
        for name, latency_s in (("images", download_s), ("callbacks", callback_s)):
            body = json.dumps({"latency_s": latency_s})
            self._http.request("PUT", self._urls[name] + CONTROL, body=body)

    def send(self, images: Sequence[int]) -> list[str]:
        """Enqueue a request for each image, ten in a call; the messages' ids."""
        sent = []
        for start in range(0, len(images), 10):
            entries = [
                {"Id": str(i), "MessageBody": json.dumps(self._body(image))}
                for i, image in enumerate(images[start : start + 10])
            ]
            answer = self._call("SendMessageBatch", QueueUrl=self.queue_url, Entries=entries)
            sent += [entry["MessageId"] for entry in answer["Successful"]]
        return sent

    def _body(self, image: int) -> dict[str, str]:
        url = f"{self._urls['images']}/{image % self._n_images}.jpg"
        return {"url": url, "callback_url": self._urls["callbacks"]}

    def counts(self, server: str) -> dict[str, Any]:
        """What a server has counted."""
        return self._stats(server, "?counts")

    def accepted(self) -> dict[str, float]:
        """When each id was accepted; grows with them, unlike the counts."""
        return dict(self._stats("callbacks", "")["accepted_at_s"])

    def _stats(self, server: str, query: str) -> dict[str, Any]:
        answer = self._http.request("GET", self._urls[server] + CONTROL + query)
        return dict(json.loads(answer.data))

    def cpu_s(self) -> float:
        """CPU seconds of the servers since they have started."""
        return sum(sum(server.cpu_times()[:2]) for server in self._processes) - self._before_s

    def left(self) -> int:
        """Messages in the queue, those in flight included, and in the dead-letter queue."""
        names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
        queues = [self._attributes(url, *names) for url in (self.queue_url, self._failed_url)]
        return sum(int(count) for counts in queues for count in counts.values())

    def _queue(self, name: str, attributes: Mapping[str, str]) -> str:
        return str(self._call("CreateQueue", QueueName=name, Attributes=attributes)["QueueUrl"])

    def _attributes(self, url: str, *names: str) -> dict[str, str]:
        answer = self._call("GetQueueAttributes", QueueUrl=url, AttributeNames=names)
        return dict(answer["Attributes"])

    def _call(self, action: str, **params: Any) -> dict[str, Any]:
        """One call of SQS without boto3, whose own work would take cores from the service."""
        headers = {"X-Amz-Target": f"AmazonSQS.{action}"}
        body = json.dumps(params)
        answer = self._http.request("POST", self._urls["sqs"], body=body, headers=headers)
        if answer.status != 200:
            raise RuntimeError(f"{action}: {answer.data.decode()}")
        return dict(json.loads(answer.data))


@dataclass
class Service:
    """The service's processes, and what they and those below them used, by Unix time."""

    processes: "Sequence[subprocess.Popen[bytes]]"
    at_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    peak_mib: float = 0.0

    def sample(self) -> None:
        """Read CPU time and memory. Raises RuntimeError: the service ended."""
        cpu, memory = 0.0, 0.0
        for process in self.processes:
            status = process.poll()
            if status is not None:
                raise RuntimeError(f"the service ended with status {status}")
            with suppress(psutil.NoSuchProcess):
                tree = ProcessTree(process.pid)
                # Both or neither: it may end between the two.
                used_s, rss_mib = tree.cpu_s(), tree.rss_mib()
                cpu += used_s
                memory += rss_mib
        self.at_s.append(time.time())
        self.cpu_s.append(cpu)
        self.peak_mib = max(self.peak_mib, memory)

    def cpu_between(self, begin: float, end: float) -> float:
        """CPU seconds between two Unix times."""
        used = np.interp([begin, end], self.at_s, self.cpu_s)
        return float(used[1] - used[0])


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
        elif time.monotonic() - moved > _STUCK_S:
            raise RuntimeError(f"{n_accepted} of {n} callbacks after {_STUCK_S:g} s without one")
        time.sleep(_POLL_S)


def _values(
    servers: Servers,
    service: Service,
    sent: Sequence[str],
    accepted: Mapping[str, float],
    times: Sequence[float],
) -> dict[str, Any]:
    """What the servers counted, and what the service used between the first time and the last."""
    deadline = time.monotonic() + _STOP_S
    left = servers.left()
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        left = servers.left()
    counts = Counter(servers.counts("callbacks"))
    check(set(sent), set(accepted), counts, left)
    images = servers.counts("images")
    delivered = servers.counts("sqs")["delivered"]
    return {
        "n_loaded": len(times) - 1,
        "wall_s": times[-1] - times[0],
        "latency_s": [],
        "cpu_s": service.cpu_between(times[0], times[-1]),
        "peak_memory_mib": service.peak_mib,
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
        "unkeyed": counts["unkeyed"],
        "left in the queue": left,
    }
    faults = [f"{count} {name}" for name, count in counted.items() if count]
    if faults:
        raise RuntimeError(f"of {len(sent)} requests {', '.join(faults)}")


@contextmanager
def _started(command: Sequence[str], log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """The service's process while the block runs; then it is stopped by SIGTERM.

    Raises RuntimeError with the last line of its output: the block failed, or the service did not
    end well.
    """
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
        "PYTHONPATH": str(provenance.CODE),
    }
    with log.open("w+") as output:
        service = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            yield service
            service.terminate()
            status = service.wait(_STOP_S)
            if status:
                raise RuntimeError(f"stopped, the service ended with status {status}")
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            output.seek(0)
            last = output.read().strip().splitlines()[-1:]
            raise RuntimeError(": ".join([str(error), *last])) from error
        finally:
            service.kill()
            service.wait()


def shared(settings: Mapping[str, Any], n_services: int, cores: int) -> dict[str, Any]:
    """Settings of one of several processes: its share of the cores, as docs/service.md says."""
    share: dict[str, Any] = {}
    if n_services > 1:
        share["workers"] = max(1, cores // n_services)
    return share | dict(settings)


def _command(cell: Cell, servers: Servers, n_services: int) -> list[str]:
    params = cell.params
    recipe, model = cell.recipe, cell.model
    if params["rung"] == 5:
        settings = shared(params["serve"], n_services, usable_cores())
        words = [f"{name}={value}" for name, value in settings.items()]
        return [sys.executable, "-m", "wallclock", "serve", servers.queue_url, *words]
    rung = rungs.RungSettings(
        queue_url=servers.queue_url,
        rung=params["rung"],
        batch=recipe.batch_size,
        workers=recipe.workers or usable_cores(),
        px=model.input_px,
        preprocess_ms=params["preprocess_ms"],
        step_ms=model.service_ms,
        step_ms_per_image=model.service_ms_per_image,
    )
    return [sys.executable, "-m", "harness.ladder.rungs", json.dumps(asdict(rung))]
