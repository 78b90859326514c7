"""GumGum's module, rungs 1 to 4, as a process: `python -m experiments.ladder.rungs SETTINGS`.

Source: R. Moarref, "Simple Ways to Save Big in Computer Vision Inference" (GumGum, 2020).

    1   everything on the main thread
    2   threads for I/O: 3 pull, 10 download, 3 call back, through queues of 300
    3   preprocessing in parallel with the device, two images ahead for each worker
    4   the same, in batches

Messages come in tens; the answer goes back with the message's id as idempotency key, then the
message is deleted. Images are decoded in full and resized by Pillow, normalized to float32. Where
the source is silent: its DataLoader workers are a pool of forked processes here, because its input
is a queue that only the main process holds; they send pixels through a pipe as pickles. A batch
waits for its last image at most as long as a step of a whole batch takes, or the last requests
would never be answered. A message is deleted by a call of its own.

The device runs the configured model, or is a mock machine in place of theirs: a step and a
preprocessing last at least as long as the settings say, and sleep what is left of it, so that this
machine's cores do not limit a larger one's.
"""

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from queue import Empty, Queue
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from experiments.ladder.parts import CALLERS, DOWNLOADERS
from harness.spec import Recipe
from wallclock.recipe import IMAGENET_MEAN, IMAGENET_STD, ModelSpec

#: Threads that pull, requests that a queue holds, images ahead for each worker.
PULLERS = 3
QUEUE_SIZE = 300
_AHEAD = 2
#: Messages in a call, and how long it waits for the first.
RECEIVED = 10
_WAIT_S = 1
_TIMEOUT_S = 30.0
#: Batches through a model before the first request, so that no request pays for its set-up.
_WARM_UP = 2

Pixels = npt.NDArray[np.float32]
#: The results of a batch of images, each (3, px, px).
Step: TypeAlias = Callable[[Sequence[Pixels]], Sequence[Sequence[float]]]


class Device(NamedTuple):
    """Steps of a model or a mock; `batch_s`: seconds of one of a whole batch."""

    step: Step
    batch_s: float


@dataclass(frozen=True)
class RungSettings:
    """One rung at work. Times in milliseconds; 0: as long as it takes here."""

    queue_url: str
    rung: int
    batch: int
    workers: int
    px: int
    #: Of each of the three queues; 0: no bound.
    queue_size: int = QUEUE_SIZE
    preprocess_ms: float = 0.0
    #: Of a step: fixed, and for each image.
    step_ms: float = 0.0
    step_ms_per_image: float = 0.0
    #: The fields of a `Recipe` and a `ModelSpec`; None for the mock.
    recipe: Mapping[str, Any] | None = None
    model: Mapping[str, Any] | None = None

    def step_s(self, n: int) -> float:
        """The least duration of a step of n images."""
        return (self.step_ms + self.step_ms_per_image * n) / 1e3

    @property
    def batch_size(self) -> int:
        """Images of a step, at most."""
        return self.batch if self.rung in (4, 6, 7) else 1


class WorkItem(NamedTuple):
    """A message: its id, its body's fields, and the handle that deletes it."""

    id: str
    url: str
    callback_url: str
    handle: str


class Network:
    """What the I/O threads call: boto3 for the queue, urllib3 for downloads and callbacks."""

    def __init__(self, queue_url: str, connections: int = DOWNLOADERS) -> None:
        import boto3
        import urllib3
        from botocore.config import Config

        at = urlsplit(queue_url)
        credentials = {f"aws_{name}": "none" for name in ("access_key_id", "secret_access_key")}
        self._sqs = boto3.client(
            "sqs",
            region_name="us-east-1",
            endpoint_url=f"{at.scheme}://{at.netloc}",
            config=Config(max_pool_connections=max(PULLERS + CALLERS, connections)),
            **credentials,
        )
        self._url = queue_url
        self._http = urllib3.PoolManager(maxsize=connections, timeout=_TIMEOUT_S)

    def pull(self) -> list[WorkItem]:
        """Up to ten messages; waits a second for the first."""
        answer = self._sqs.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=RECEIVED, WaitTimeSeconds=_WAIT_S
        )
        return [work_item(message) for message in answer.get("Messages", ())]

    def download(self, request: WorkItem) -> bytes:
        """The image. Raises OSError: any status but 200."""
        answer = self._http.request("GET", request.url)
        if answer.status != 200:
            raise OSError(f"{request.url}: status {answer.status}")
        return answer.data

    def call_back(self, request: WorkItem, result: Any) -> None:
        """Send a result, then delete the message. Raises OSError: it was not accepted."""
        body = json.dumps({"id": request.id, "result": result})
        headers = {"Content-Type": "application/json", "Idempotency-Key": request.id}
        answer = self._http.request("POST", request.callback_url, body=body, headers=headers)
        if answer.status != 200:
            raise OSError(f"{request.callback_url}: status {answer.status}")
        self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=request.handle)


def work_item(message: Mapping[str, str]) -> WorkItem:
    """A message as SQS delivers it."""
    body = json.loads(message["Body"])
    return WorkItem(
        message["MessageId"], body["url"], body["callback_url"], message["ReceiptHandle"]
    )


class Buffers:
    """The three queues, and one turn of each I/O thread; a turn waits where a queue is full.

    Args:
        size: of each queue; 0: no bound, so that `pull` takes whatever the message queue has.
    """

    def __init__(self, network: Network, size: int) -> None:
        self._network = network
        self.pulled: Queue[WorkItem] = Queue(size)
        self.downloaded: Queue[tuple[WorkItem, bytes]] = Queue(size)
        self.results: Queue[tuple[WorkItem, Any]] = Queue(size)

    def pull(self) -> None:
        """Take messages from the message queue."""
        for request in self._network.pull():
            self.pulled.put(request)

    def download(self) -> None:
        """Download the image of one message."""
        request = self.pulled.get()
        self.downloaded.put((request, self._network.download(request)))

    def call_back(self) -> None:
        """Send one result."""
        self._network.call_back(*self.results.get())


def preprocess(data: bytes, px: int, least_s: float) -> Pixels:
    """Decode in full, resize to (3, px, px), normalize; takes `least_s` at least."""
    from PIL import Image

    began = time.perf_counter()
    with Image.open(BytesIO(data)) as image:
        resized = image.convert("RGB").resize((px, px), Image.Resampling.BILINEAR)
    pixels = normalize(np.asarray(resized))
    sleep_until(began + least_s)
    return pixels


def normalize(pixels: npt.NDArray[np.uint8]) -> Pixels:
    """(px, px, 3) → (3, px, px), by ImageNet's statistics."""
    mean, std = (np.array(values, np.float32) for values in (IMAGENET_MEAN, IMAGENET_STD))
    normalized: Pixels = (pixels.astype(np.float32) / np.float32(255) - mean) / std
    return normalized.transpose(2, 0, 1)


def sleep_until(at: float) -> None:
    """Sleep until a time of `perf_counter`; returns at once if that is over."""
    time.sleep(max(0.0, at - time.perf_counter()))


def main(settings: RungSettings) -> None:
    """Serve until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    network = Network(settings.queue_url)
    if settings.rung == 1:
        _sequential(settings, network)
    elif settings.rung == 2:
        _answer(settings, network, None)
    else:
        # Forked before any thread starts, all at once, and before a device is opened.
        with ProcessPoolExecutor(settings.workers, multiprocessing.get_context("fork")) as pool:
            pool.submit(os.getpid).result()
            _answer(settings, network, pool)


def _sequential(settings: RungSettings, network: Network) -> None:
    device = open_device(settings)
    while True:
        for request in network.pull():
            data = network.download(request)
            pixels = preprocess(data, settings.px, settings.preprocess_ms / 1e3)
            network.call_back(request, device.step([pixels])[0])


def _answer(settings: RungSettings, network: Network, pool: Executor | None) -> None:
    """I/O in threads; the main thread, or the pool, preprocesses; the main thread steps."""
    device = open_device(settings)
    buffers = Buffers(network, settings.queue_size)
    for count, turn in (
        (PULLERS, buffers.pull),
        (DOWNLOADERS, buffers.download),
        (CALLERS, buffers.call_back),
    ):
        for _ in range(count):
            _start(turn)
    source = buffers.downloaded
    if pool is None:
        batches = _alone(settings, source)
    else:
        batches = _ahead(settings, source, pool, device.batch_s)
    for requests, pixels in batches:
        for request, result in zip(requests, device.step(pixels), strict=True):
            buffers.results.put((request, result))


Batches = Iterator[tuple[Sequence[WorkItem], Sequence[Pixels]]]


def _alone(settings: RungSettings, downloaded: "Queue[tuple[WorkItem, bytes]]") -> Batches:
    while True:
        request, data = downloaded.get()
        yield [request], [preprocess(data, settings.px, settings.preprocess_ms / 1e3)]


def _ahead(
    settings: RungSettings,
    downloaded: "Queue[tuple[WorkItem, bytes]]",
    pool: Executor,
    wait_s: float,
) -> Batches:
    """Batches in the order of their images, which the pool preprocesses meanwhile."""
    submitted: Queue[tuple[WorkItem, Future[Pixels]]] = Queue(_AHEAD * settings.workers)

    def submit() -> None:
        request, data = downloaded.get()
        least_s = settings.preprocess_ms / 1e3
        submitted.put((request, pool.submit(preprocess, data, settings.px, least_s)))

    _start(submit)
    size = settings.batch_size
    while True:
        batch = [submitted.get()]
        deadline = time.monotonic() + wait_s
        try:
            while len(batch) < size:
                batch.append(submitted.get(timeout=max(0.0, deadline - time.monotonic())))
        except Empty:
            pass  # the step takes what there is
        requests, futures = zip(*batch, strict=True)
        yield requests, [future.result() for future in futures]


def open_device(settings: RungSettings) -> Device:
    """The model of the settings, warm, or the mock, whose results are []."""
    size = settings.batch_size
    if settings.recipe is None or settings.model is None:
        return Device(_mock_step(settings), settings.step_s(size))
    from wallclock.infer.network import open_embedder

    embedder = open_embedder(Recipe(**settings.recipe), ModelSpec(**settings.model))

    def step(images: Sequence[Pixels]) -> Sequence[Sequence[float]]:
        vectors: list[list[float]] = embedder.embed(np.stack(images)).tolist()
        return vectors

    blank = np.zeros((3, settings.px, settings.px), np.float32)
    for _ in range(_WARM_UP):
        began = time.perf_counter()
        step([blank] * size)
    return Device(step, time.perf_counter() - began)


def _mock_step(settings: RungSettings) -> Step:
    def step(images: Sequence[Pixels]) -> Sequence[Sequence[float]]:
        began = time.perf_counter()
        np.stack(images)
        sleep_until(began + settings.step_s(len(images)))
        return [[]] * len(images)

    return step


def _start(task: Callable[[], None]) -> None:
    """Call it again and again in a thread; an exception ends the process."""

    def run() -> None:
        try:
            while True:
                task()
        except Exception:  # noqa: BLE001 - a dead thread must not pass for a slow one
            traceback.print_exc()
            os._exit(1)

    threading.Thread(target=run, daemon=True).start()


if __name__ == "__main__":
    main(RungSettings(**json.loads(sys.argv[1])))
