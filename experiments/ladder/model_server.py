"""A model server behind a queue consumer: `python -m experiments.ladder.model_server SETTINGS`.

LitServe as in its guide, https://lightning.ai/docs/litserve/speed-up-serving-by-200x: an image is
base64 in JSON, a batch is decoded by a pool of threads, several workers share a GPU. Threads in
front of it pull messages, download, POST the image to the server and call back with its answer.
Measured only with a model on this machine: a worker decodes and steps in turn, and each opens a
device of its own, so that on the mock, which has one, it could never overlap the two.
"""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from threading import Thread
from typing import Any

import litserve
import urllib3

from experiments.ladder.consumer import preprocess
from experiments.ladder.rungs import Network, Pixels, RungSettings, WorkItem, open_device

#: By device; on a CPU the step of one worker takes all cores.
_WORKERS = {"cpu": 1, "cuda": 4}
#: Requests at work, in batches of each worker, and how long a batch waits for its last image.
_BATCHES, _WAIT_S = 2, 0.01


class Api(litserve.LitAPI):  # type: ignore[misc]  # its package has no types
    """What each worker runs."""

    def __init__(self, settings: RungSettings) -> None:
        super().__init__(max_batch_size=settings.batch_size, batch_timeout=_WAIT_S)
        self._settings = settings

    def setup(self, device: str) -> None:
        """Open the model."""
        self._model = open_device(self._settings)
        self._pool = ThreadPoolExecutor(self._settings.workers)

    def decode_request(self, request: dict[str, str]) -> str:
        """The image in base64."""
        return request["image_data"]

    def batch(self, images: Sequence[str]) -> list[Pixels]:
        """Decode the images at the same time."""
        return list(self._pool.map(self._decode, images))

    def _decode(self, image: str) -> Pixels:
        return preprocess(base64.b64decode(image), self._settings)

    def predict(self, images: Sequence[Pixels]) -> Sequence[Sequence[float]]:
        """A vector of each image."""
        return self._model.step(images)

    def encode_response(self, output: Sequence[float]) -> dict[str, Any]:
        """The answer."""
        return {"output": output}


def serve(settings: RungSettings, port: int) -> None:
    """Run the server until the consumer, whose end of the pipe is standard input, ends."""
    Thread(target=_end_with_consumer, daemon=True).start()
    device = _device(settings)
    server = litserve.LitServer(
        Api(settings),
        accelerator=device,
        devices=1,
        workers_per_device=_WORKERS[device],
        timeout=False,
        fast_queue=True,  # ZeroMQ, its own advice above 100 requests per second
    )
    server.run(host="127.0.0.1", port=port, generate_client_file=False, log_level="error")


def _device(settings: RungSettings) -> str:
    return settings.recipe["device"] if settings.recipe else "cpu"


def _end_with_consumer() -> None:
    os.read(0, 1)  # not sys.stdin.read, whose lock a fork would copy
    os.killpg(0, signal.SIGKILL)


def consume(settings: RungSettings, server: "subprocess.Popen[bytes]", url: str) -> None:
    """Pull, download, ask the server, call back. Raises the error of the first thread that fails.

    Raises:
        OSError: among others, the server ended before it was ready, or refused an image.
    """
    n = _BATCHES * _WORKERS[_device(settings)] * settings.batch_size
    network, http = Network(settings.queue_url, n), urllib3.PoolManager(maxsize=n)
    _wait_until_ready(server, http, url)
    pulled: Queue[WorkItem] = Queue(1)  # no more wait for a thread than a pull brings
    failures: Queue[Exception] = Queue()

    def pull() -> None:
        for request in network.pull():
            pulled.put(request)

    def answer() -> None:
        request = pulled.get()
        image = base64.b64encode(network.download(request)).decode()
        response = http.request("POST", f"{url}/predict", json={"image_data": image})
        if response.status != 200:
            raise OSError(f"the model server answers with status {response.status}")
        network.call_back(request, response.json()["output"])

    def repeat(task: Callable[[], None]) -> None:
        try:
            while True:
                task()
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            failures.put(error)

    for task in [pull, *[answer] * n]:
        Thread(target=repeat, args=(task,), daemon=True).start()
    raise failures.get()


def _wait_until_ready(
    server: "subprocess.Popen[bytes]", http: urllib3.PoolManager, url: str
) -> None:
    while server.poll() is None:
        try:
            if http.request("GET", f"{url}/health", retries=False).status == 200:
                return
        except urllib3.exceptions.HTTPError:
            pass  # it does not listen yet
        time.sleep(0.2)
    raise OSError(f"the model server ended with status {server.returncode}")


def main(words: Sequence[str]) -> None:
    """The server if a port follows the settings, else the consumer with a server as its child."""
    settings = RungSettings(**json.loads(words[0]))
    if words[1:]:
        serve(settings, int(words[1]))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", __spec__.name, words[0], str(port)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    consume(settings, server, f"http://127.0.0.1:{port}")


if __name__ == "__main__":
    main(sys.argv[1:])
