"""A queue consumer of sixty lines: `python -m experiments.ladder.consumer SETTINGS`.

What an expert would write instead of `wallclock serve`: boto3 and urllib3 in threads, as many
messages at work as fill a few batches, pixels by simplejpeg and torch's resize in a thread for each
core. It extends no visibility timeout, checks no URL, signs nothing, and a message that fails is
delivered again until the queue gives it up.
"""

import json
import signal
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, Queue
from threading import Semaphore, Thread, local
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from experiments.ladder.rungs import (
    PULLERS,
    Network,
    Pixels,
    RungSettings,
    WorkItem,
    normalize,
    open_device,
    sleep_until,
)
from harness.engines.third_party.dataloader_scaled import load_function

#: Threads that download, and as many that call back.
_IO_THREADS = 32
#: Messages at work, in batches.
_BATCHES = 4
#: `load`: decodes and resizes, with a buffer that it uses again.
_per_thread = local()


def main(settings: RungSettings) -> None:
    """Serve until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    network, device = Network(settings.queue_url, 2 * _IO_THREADS), open_device(settings)
    downloads, callbacks = ThreadPoolExecutor(_IO_THREADS), ThreadPoolExecutor(_IO_THREADS)
    cores = ThreadPoolExecutor(settings.workers)
    at_work = Semaphore(_BATCHES * settings.batch_size)
    downloaded: Queue[tuple[WorkItem, Future[Pixels]]] = Queue()

    def pull() -> None:
        while True:
            for request in network.pull():
                at_work.acquire()
                downloads.submit(download, request)

    def download(request: WorkItem) -> None:
        data = network.download(request)
        downloaded.put((request, cores.submit(preprocess, data, settings)))

    def call_back(request: WorkItem, result: Any) -> None:
        network.call_back(request, result)
        at_work.release()

    for _ in range(PULLERS):
        Thread(target=pull, daemon=True).start()
    while True:
        batch = [downloaded.get()]
        deadline = monotonic() + device.batch_s
        try:
            while len(batch) < settings.batch_size:
                batch.append(downloaded.get(timeout=max(0.0, deadline - monotonic())))
        except Empty:
            pass  # the step takes what there is
        requests, futures = zip(*batch, strict=True)
        results = device.step([future.result() for future in futures])
        for request, result in zip(requests, results, strict=True):
            callbacks.submit(call_back, request, result)


def preprocess(data: bytes, settings: RungSettings) -> Pixels:
    """The image, normalized, (3, px, px)."""
    began = perf_counter()
    if not hasattr(_per_thread, "load"):
        _per_thread.load = load_function(settings.px, "exact")
    pixels = np.empty((settings.px, settings.px, 3), np.uint8)
    _per_thread.load(data, pixels)
    normalized = normalize(pixels)
    sleep_until(began + settings.preprocess_ms / 1e3)
    return normalized


if __name__ == "__main__":
    main(RungSettings(**json.loads(sys.argv[1])))
