"""A service's processes, and around them a queue, an image store and a callback receiver.

The three servers are the test bed's, each a process on loopback. Image store and callback receiver
wait before every answer as long as the cell's `download_ms` and `callback_ms` say.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from experiments.ladder import rungs
from harness import peers, provenance
from harness.corpora.manifest import Manifest
from harness.processes import ProcessTree
from harness.spec import Cell
from harness.telemetry import gpu_readings
from harness.testbed import serving
from harness.testbed.faults import CONTROL
from wallclock.machine import nvml_handles, usable_cores

#: S3's queues of 300 hold 300 × 3 / 9 = 100 s of rung 2's messages, by its own formula.
VISIBILITY_S = 120
_MAX_RECEIVES = 5
#: Between two readings of counts, CPU time and memory.
POLL_S = 0.2
#: Without progress for so long, the service is stuck; it may take longer until it has a model.
STUCK_S, START_S = 60.0, 300.0
STOP_S = 15.0
#: Of the rungs that are neither the source's nor the service.
_MODULES = {6: "consumer", 7: "model_server"}


class Servers:
    """The three servers around a service, and a queue: name → its URL and process."""

    def __init__(
        self,
        started: Mapping[str, tuple[str, Any]],
        n_images: int,
        visibility_s: int = VISIBILITY_S,
        max_receives: int = _MAX_RECEIVES,
    ) -> None:
        import urllib3

        self._http = urllib3.PoolManager()
        self._urls = {name: url for name, (url, _) in started.items()}
        self._n_images = n_images
        self._processes = [psutil.Process(child.pid) for _, child in started.values()]
        self._failed_url = self._queue("failed", {})
        arn = self._attributes(self._failed_url, "QueueArn")["QueueArn"]
        policy = {"deadLetterTargetArn": arn, "maxReceiveCount": max_receives}
        attributes = {"VisibilityTimeout": str(visibility_s), "RedrivePolicy": json.dumps(policy)}
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
        names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible")]
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
    """The service's processes, and what they and those below them used, by Unix time.

    `gpu`: NVML's handle of the GPU that they use; None on a CPU. Its readings are of the device,
    whoever uses it.
    """

    processes: "Sequence[subprocess.Popen[bytes]]"
    gpu: Any = None
    at_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    peak_mib: float = 0.0
    #: (Unix time, percent) and MiB.
    gpu_util: list[tuple[float, float]] = field(default_factory=list)
    gpu_peak_mib: float = 0.0

    def sample(self) -> None:
        """Read CPU time, memory and the GPU. Raises RuntimeError: the service ended."""
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
        now = time.time()
        self.at_s.append(now)
        self.cpu_s.append(cpu)
        self.peak_mib = max(self.peak_mib, memory)
        readings = {} if self.gpu is None else gpu_readings(self.gpu)
        if "gpu_util" in readings:
            self.gpu_util.append((now, readings["gpu_util"]))
        self.gpu_peak_mib = max(self.gpu_peak_mib, readings.get("gpu_mem_mib", 0.0))

    def used_between(self, begin: float, end: float) -> dict[str, float]:
        """CPU seconds and peak memory; of a GPU its mean utilization in percent, and its memory."""
        before_s, after_s = np.interp([begin, end], self.at_s, self.cpu_s)
        used = {"cpu_s": float(after_s - before_s), "peak_memory_mib": self.peak_mib}
        if taken := [percent for at, percent in self.gpu_util if begin <= at <= end]:
            used["gpu_util_mean"] = sum(taken) / len(taken)
        if self.gpu_peak_mib:
            used["gpu_used_gib"] = self.gpu_peak_mib / 1024
        return used


@contextmanager
def running(
    cell: Cell, work: Path, manifest: Manifest, **queue: int
) -> Iterator[tuple[Servers, Service]]:
    """The servers and the service of a cell while the block runs.

    `queue`: `visibility_s` and `max_receives` of its queue. The valid images of the manifest are
    the store's. Raises RuntimeError: the block failed, or the service did not end well, with the
    last line of its output.
    """
    images = work / "images"
    images.mkdir()
    for i, item in enumerate(manifest.valid):
        (images / f"{i}.jpg").symlink_to((manifest.root / item.path).resolve())
    params = cell.params
    n_services = params["services"] or usable_cores()
    with ExitStack() as stack:
        arguments = {"sqs": (), "callbacks": (), "images": ("--folder", str(images))}
        started = {
            name: stack.enter_context(serving.process(name, *words))
            for name, words in arguments.items()
        }
        servers = Servers(started, len(manifest.valid), **queue)
        servers.delay(params["download_ms"] / 1e3, params["callback_ms"] / 1e3)
        gpus = stack.enter_context(nvml_handles()) if cell.recipe.device == "cuda" else []
        command = _command(cell, servers.queue_url, n_services)
        outputs = [work / f"output-{number}" for number in range(n_services)]
        processes = [stack.enter_context(_started(command, output)) for output in outputs]
        yield servers, Service(processes, next(iter(gpus), None))


@contextmanager
def _started(command: Sequence[str], log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """The service's process while the block runs; then it is stopped by SIGTERM."""
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
        "PYTHONPATH": provenance.IMPORT_PATH,
    }
    with log.open("w+") as output:
        service = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            yield service
            service.terminate()
            status = service.wait(STOP_S)
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


def _command(cell: Cell, queue_url: str, n_services: int) -> list[str]:
    params = cell.params
    recipe, model = cell.recipe, cell.model
    if params["rung"] == 7:
        peers.import_or_unavailable("litserve")
    if params["rung"] == 5:
        settings = shared(params["serve"], n_services, usable_cores())
        words = [f"{name}={value}" for name, value in settings.items()]
        return [sys.executable, "-m", "wallclock", "serve", queue_url, *words]
    has_network = model.weights != "none"
    rung = rungs.RungSettings(
        queue_url=queue_url,
        rung=params["rung"],
        batch=recipe.batch_size,
        workers=recipe.workers or usable_cores(),
        px=model.input_px,
        queue_size=params["queue_size"],
        preprocess_ms=params["preprocess_ms"],
        step_ms=model.service_ms,
        step_ms_per_image=model.service_ms_per_image,
        recipe=asdict(recipe) if has_network else None,
        model=asdict(model) if has_network else None,
    )
    module = _MODULES.get(params["rung"], "rungs")
    return [sys.executable, "-m", f"experiments.ladder.{module}", json.dumps(asdict(rung))]
